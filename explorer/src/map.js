// The map: users as points in the colour of their community, the centres marked by their numbers.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { cssColour, inOrder, paletteTexture } from "./colours.js";
import { Failure, html, many } from "./parts.js";
import { Scatter } from "./scatter.js";

const put = (element, scatter, x, y) => {
  const [left, top] = scatter.toScreen(x, y);
  element.style.transform = `translate(${left}px, ${top}px)`;
  return [left, top];
};

export function MapView({ points, error, communities, colours, user, community, dark, onUser, onCommunity }) {
  const canvas = useRef(null);
  const [scatter, setScatter] = useState(null);
  const markers = useRef(new Map());
  const ring = useRef(null);
  const hover = useRef(null);
  const [centres, setCentres] = useState(true);
  const now = useRef({});
  now.current = { points, communities, user, community, onUser };

  // Places what lies over the canvas. Where centres would overlap, the first one keeps its mark.
  const onView = (view) => {
    const taken = [];
    const first = (one) => Number(one.community === now.current.community);
    const order = (a, b) => first(b) - first(a) || inOrder(a, b);
    for (const one of [...now.current.communities].sort(order)) {
      const element = markers.current.get(one.community);
      if (!element) continue;
      const [left, top] = put(element, view, one.x, one.y);
      const clash = taken.some(([a, b]) => Math.abs(a - left) < 28 && Math.abs(b - top) < 26);
      const outside = left < 0 || top < 0 || left > view.width || top > view.height;
      element.hidden = clash || outside;
      if (!element.hidden) taken.push([left, top]);
    }
    const chosen = now.current.user;
    const isShown = Number.isFinite(chosen?.x);
    ring.current.hidden = !isShown;
    if (isShown) put(ring.current, view, chosen.x, chosen.y);
    hover.current.hidden = true;
  };

  // WebGL takes long to start, so the requests of the page go first.
  useEffect(() => {
    let view;
    const timer = setTimeout(() => {
      view = new Scatter(canvas.current, {
        onView,
        onPick: (point) => now.current.onUser(now.current.points.rows[point]),
        onHover: (point) => {
          canvas.current.classList.toggle("pointing", point >= 0);
          hover.current.hidden = point < 0;
          const { places } = now.current.points ?? {};
          if (point >= 0) put(hover.current, view, places[2 * point], places[2 * point + 1]);
        },
      });
      setScatter(view);
    });
    return () => {
      clearTimeout(timer);
      view?.close();
    };
  }, []);
  // Without waiting for the next frame: the map is there sooner.
  useLayoutEffect(() => scatter?.colour(paletteTexture(colours, dark)), [scatter, colours, dark]);
  useLayoutEffect(() => scatter?.show(points ?? { users: 0 }), [scatter, points]);
  useEffect(() => scatter?.focusOn(community ?? -1), [scatter, community]);
  useEffect(() => (Number.isFinite(user?.x) ? scatter?.goTo(user.x, user.y) : scatter?.redraw()), [scatter, user?.row]);
  useEffect(() => scatter?.redraw(), [scatter, communities, centres]);

  const about = points
    ? `Map of ${many(points.users, "user")}, ${many(communities.length, "community", "communities")}`
    : "Map of users";
  const marks = centres ? communities : [];
  return html`<section class="map" aria-label="Map">
    <canvas
      ref=${canvas}
      tabindex="0"
      role="application"
      aria-label=${`${about}. Arrow keys move it, plus and minus zoom, 0 shows all. Search finds users by name.`}
    ></canvas>
    <div class="marks">
      <span class="ring hovered" ref=${hover} hidden></span>
      <span class="ring" ref=${ring} hidden></span>
      ${marks.map(
        (one) =>
          html`<button
            type="button"
            key=${one.community}
            ref=${(element) =>
              element ? markers.current.set(one.community, element) : markers.current.delete(one.community)}
            tabindex="-1"
            class=${one.community === community ? "centre chosen" : "centre"}
            style=${{ "--colour": cssColour(colours.get(one.community)) }}
            aria-label=${`Community ${one.community}: ${one.name}`}
            onClick=${() => onCommunity(one.community)}
          >
            ${one.community}<span class="name" aria-hidden="true">${one.name}</span>
          </button>`,
      )}
    </div>
    <div class="tools" role="group" aria-label="Map controls">
      <button type="button" aria-label="Zoom in" onClick=${() => scatter?.zoomBy(1.6)}>+</button>
      <button type="button" aria-label="Zoom out" onClick=${() => scatter?.zoomBy(1 / 1.6)}>−</button>
      <button type="button" onClick=${() => scatter?.reset()}>Reset</button>
      ${
        communities.length > 0 &&
        html`<button type="button" aria-pressed=${String(centres)} onClick=${() => setCentres(!centres)}>
          Centres
        </button>`
      }
    </div>
    ${scatter && !scatter.gl && html`<p class="failure">No map: this browser has no WebGL2. All else works.</p>`}
    ${error && html`<${Failure} error=${error} />`}
    ${!points && !error && html`<p class="waiting">The map is on its way …</p>`}
  </section>`;
}
