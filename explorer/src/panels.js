// What stands beside the map: all communities, one community, or one user.

import { useEffect, useRef } from "preact/hooks";
import { Answer } from "./answer.js";
import { Bar, count, Failure, html, Items, many, Notes, percent, Swatch, useAnswer } from "./parts.js";
import { cssColour } from "./colours.js";

let moved = false;
addEventListener("hashchange", () => {
  moved = true;
});

// A heading that takes the focus when its view opens, so that a keyboard or a screen reader goes on from there.
export function Heading({ children, onClose }) {
  const heading = useRef(null);
  useEffect(() => {
    if (moved) heading.current.focus({ preventScroll: window.innerWidth > 900 });
  }, []);
  return html`<div class="heading">
    <h2 ref=${heading} tabindex="-1">${children}</h2>
    <button type="button" class="quiet" onClick=${onClose}>All communities</button>
  </div>`;
}

const KINDS = {
  mixtures: "by membership",
  anchors: "around anchors",
};

export function Overview({ about, notes, colours, onCommunity }) {
  if (!about.communities.length) {
    return html`<h2>No communities</h2>
      <p>This model has no communities: all points have one colour. Click a point or search for a user.</p>
      <${Notes} notes=${notes} />`;
  }
  const mixtures = new Set(about.communities.map((one) => one.mixture));
  const most = Math.max(...about.communities.map((one) => one.members), 1);
  return html`<h2>Communities</h2>
    <p class="facts">
      ${many(about.users, "user")}, ${count(about.communities.length)} communities
      ${KINDS[about.kind] ? ` ${KINDS[about.kind]}` : ""}${
        about.alpha === null ? "" : `; the global model has ${percent(about.alpha)} of an answer`
      }
    </p>
    <${Notes} notes=${notes} />
    ${[...mixtures].map(
      (mixture) =>
        html`${mixtures.size > 1 && html`<h3>Mixture ${mixture}</h3>`}
          <ul class="communities">
            ${about.communities
              .filter((one) => one.mixture === mixture)
              .map(
                (one) =>
                  html`<li key=${one.community}>
                    <button type="button" onClick=${() => onCommunity(one.community)}>
                      <${Swatch} colour=${colours.get(one.community)} />
                      <span class="number">${one.community}</span>
                      <span class="title">${one.name}</span>
                      <span class="value">${count(one.members)}<span class="unseen"> users</span></span>
                      <${Bar} share=${one.members / most} colour=${cssColour(colours.get(one.community))} />
                    </button>
                  </li>`,
              )}
          </ul>`,
    )}`;
}

const strongest = (points, number) => points.communities.reduce((sum, one) => sum + Number(one === number), 0);

export function Community({ source, model, number, points, colours, onUser, onClose }) {
  const { data, error } = useAnswer(
    () => source.community(model.name, number),
    JSON.stringify([model.name, model.fingerprint, number]),
  );
  const heard = (items) => new Set((items ?? []).map((one) => one.item));
  const [own, whole] = [heard(data?.items), heard(data?.global)];
  return html`<${Heading} onClose=${onClose}> <${Swatch} colour=${colours.get(number)} /> Community ${number} <//>
    ${error && html`<${Failure} error=${error} />`}
    ${!data && !error && html`<p class="waiting">The community is on its way …</p>`}
    ${
      data &&
      html`<p class="lead">${data.name}</p>
        <p class="facts">
          ${count(data.members)} of ${many(data.users, "user")} (${percent(data.members / data.users)})
          ${points && `; on the map it is the strongest one of ${count(strongest(points, number))}`}
        </p>
        <div class="columns">
          <section>
            <h3>Taken beyond others</h3>
            <p class="facts">How many times as often as all users.</p>
            <${Items}
              items=${data.known_for.filter((one) => one.lift > 1)}
              value=${(item) => `${item.lift.toFixed(1)}×`}
            />
          </section>
          <section>
            <h3>Typical users</h3>
            <ul class="typical">
              ${data.typical_users.map(
                (one) =>
                  html`<li key=${one.row}>
                    <button type="button" class="link" onClick=${() => onUser(one.row)}>User ${one.user}</button>
                    <span class="value">membership ${percent(one.membership)}</span>
                  </li>`,
              )}
            </ul>
          </section>
        </div>
        <p class="facts">Both lists are for the mean history of the members. Bold: only one of the two lists has it.</p>
        <div class="columns pair">
          <section>
            <h3>Its own list</h3>
            <${Items} items=${data.items} marked=${(item) => !whole.has(item.item)} />
          </section>
          <section>
            <h3>The global list</h3>
            <${Items} items=${data.global} marked=${(item) => !own.has(item.item)} />
          </section>
        </div>`
    }
    <p class="unseen" role="status">${data ? `Community ${number}: ${data.name}` : ""}</p>`;
}

export function User({ source, model, row, user, error, communities, users, colours, onCommunity, onClose }) {
  const home = communities.find((one) => one.community === user?.community);
  return html`<${Heading} onClose=${onClose}>User ${user ? user.user : "…"}<//>
    ${error && html`<${Failure} error=${error} />`}
    ${
      home &&
      html`<p class="facts home">
        <${Swatch} colour=${colours.get(home.community)} />
        <button type="button" class="link" onClick=${() => onCommunity(home.community)}>
          Community ${home.community}: ${home.name}
        </button>
      </p>`
    }
    ${user && user.x === null && html`<p class="facts">This user is not on the map.</p>`}
    ${
      user &&
      html`<${Answer}
        source=${source}
        model=${model}
        who=${{ user: user.user }}
        row=${row}
        users=${users}
        colours=${colours}
        onCommunity=${onCommunity}
      />`
    }`;
}
