"""The paper's two experiments, end to end: recipes, cells, the sweep over them, and its outputs."""
