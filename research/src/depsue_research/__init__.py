"""Experiments beside the product: the paper's two, the audit of certificates, and its tests."""
