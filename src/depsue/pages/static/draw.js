// Draws the figures of a page, and keeps its live parts fresh. Without it, tables say the same.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(figure) {
    const target = figure.querySelector(".drawn");
    const text = figure.querySelector("script").textContent;
    const plot = JSON.parse(text.replace(/var\((--[a-z]+)\)/g, (_, name) => colour(name)));
    const narrow = target.clientWidth < 420;
    const axis = { gridcolor: colour("--line"), zeroline: false, automargin: true,
                   fixedrange: true, linecolor: colour("--grey") };
    const titled = (given) => ({ ...given, title: { ...given.title, font: { size: 12.5 } } });
    const layout = {
      ...plot.layout,
      xaxis: { ...axis, showgrid: false, showline: true, nticks: narrow ? 4 : 6,
               ...titled(plot.layout.xaxis) },
      yaxis: { ...axis, nticks: 6, ...titled(plot.layout.yaxis) },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12.5, color: colour("--ink") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--grey"),
                    font: { color: colour("--ink") } },
      margin: { l: 8, r: 12, t: 8, b: 8 }, dragmode: false, hovermode: "closest",
      showlegend: true,
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
    };
    if (!target.classList.contains("js-plotly-plot")) target.replaceChildren();
    Plotly.react(target, plot.data, layout, { displayModeBar: false, responsive: true });
  }

  function drawAll(within) {
    if (window.Plotly) within.querySelectorAll("figure.plot").forEach(draw);
  }

  // A live part is taken over from a fresh copy of the page where it has changed, unless
  // somebody is in it with the keyboard; what was unfolded stays so.
  async function refresh() {
    if (document.hidden) return;
    let fresh;
    try {
      const answer = await fetch(location.href, { redirect: "error" });
      if (!answer.ok) return;
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      return;
    }
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other || part.contains(document.activeElement)) continue;
      if (part.dataset.was === other.innerHTML) continue;
      const open = [...part.querySelectorAll("details[open]")].map((one) => one.id);
      part.dataset.was = other.innerHTML;
      part.replaceChildren(...other.childNodes);
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      drawAll(part);
    }
  }

  drawAll(document);
  dark.addEventListener("change", () => drawAll(document));
  const seconds = Number(document.body.dataset.refresh || 0);
  if (seconds > 0) setInterval(refresh, 1000 * seconds);
})();
