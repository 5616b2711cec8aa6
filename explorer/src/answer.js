// One answer: the list for a user or for some items, why, who answers, the history; and sliders that change it.

import { useId, useState } from "preact/hooks";
import { cssColour } from "./colours.js";
import {
  Bar,
  count,
  Failure,
  figure,
  html,
  Items,
  many,
  Notes,
  percent,
  Swatch,
  titleOf,
  useAnswer,
  useFirst,
} from "./parts.js";

const HALF_LIVES = 50;
// A model says its recency as "half-life 4 positions"; one in units of time has no place on the slider.
const positions = (recency) =>
  Math.min(HALF_LIVES, Number(/^half-life ([\d.]+) positions/.exec(recency ?? "")?.[1] ?? 0));

function Slider({ label, shown, value, onInput, ...range }) {
  const id = useId();
  return html`<div class="slider">
    <label for=${id}>${label}</label>
    <output for=${id}>${shown}</output>
    <input
      id=${id}
      type="range"
      value=${value}
      aria-valuetext=${shown}
      onInput=${(event) => onInput(Number(event.target.value))}
      ...${range}
    />
  </div>`;
}

function Controls({ model, recency, share, onRecency, onShare }) {
  const own = model.recency === null ? "off" : model.recency.replace("half-life ", "");
  const half = recency === null ? `${own} (the model’s)` : recency ? many(recency, "position") : "off";
  const alpha = share ?? model.alpha;
  return html`<fieldset class="controls">
    <legend>What if</legend>
    <${Slider}
      label="Recency half-life"
      shown=${half}
      min="0"
      max=${HALF_LIVES}
      step="1"
      value=${recency ?? positions(model.recency)}
      onInput=${onRecency}
    />
    ${
      model.communities > 0 &&
      model.alpha !== null &&
      html`<${Slider}
        label="Global share"
        shown=${share === null ? `${percent(alpha)} (the model’s)` : percent(alpha)}
        min="0"
        max="100"
        step="5"
        value=${Math.round(100 * alpha)}
        onInput=${(value) => onShare(value / 100)}
      />`
    }
    <button
      type="button"
      class="quiet"
      disabled=${recency === null && share === null}
      onClick=${() => {
        onRecency(null);
        onShare(null);
      }}
    >
      Back to the model’s
    </button>
  </fieldset>`;
}

const MOST_REASONS = 3;

// The strongest items of the history for a listed item, then what speaks against it.
function Because({ item }) {
  const reasons = item.because.filter((one) => one.share >= 0.005);
  const named = reasons.slice(0, MOST_REASONS);
  const against = item.because.filter((one) => one.share <= -0.05).slice(-2);
  const rest = reasons.slice(MOST_REASONS).reduce((sum, one) => sum + one.share, 0);
  const piece = (one) => html`<li key=${String(one.item)}>${titleOf(one)} <b>${percent(one.share)}</b></li>`;
  const everyone = item.everyone?.share ?? 0;
  if (!named.length && everyone <= 0) return html`<p class="because">no item of the history speaks for it</p>`;
  return html`<ul class="because" aria-label="Because of">
    ${named.map(piece)}
    ${rest >= 0.005 && html`<li>${count(reasons.length - named.length)} more <b>${percent(rest)}</b></li>`}
    ${everyone >= 0.005 && html`<li>popular with everyone <b>${percent(everyone)}</b></li>`}
    ${against.map(
      (one) => html`<li key=${String(one.item)}>in spite of ${titleOf(one)} <b>${percent(one.share)}</b></li>`,
    )}
  </ul>`;
}

const words = (items, figures = () => "") =>
  items.map((one, place) => html`${place > 0 && " · "}${titleOf(one)}${figures(one)}`);

function Says({ items, known, raised }) {
  const typical = (known ?? []).filter((one) => one.lift > 1);
  return html`<dl class="says">
    <dt>says</dt>
    <dd>${words(items)}</dd>
    ${
      raised?.length > 0 &&
      html`<dt>raises</dt>
        <dd>${words(raised)}</dd>`
    }
    ${
      typical.length > 0 &&
      html`<dt>known for</dt>
        <dd>${words(typical, (one) => ` (${one.lift.toFixed(1)}×)`)}</dd>`
    }
  </dl>`;
}

function Sources({ inside, colours, onCommunity, users }) {
  const [shown, more] = useFirst(inside.communities, 5);
  if (!inside.communities.length) return html`<p>No community covers this history: the global model answers alone.</p>`;
  return html`<ul class="sources">
      ${shown.map((one) => {
        const colour = colours.get(one.community);
        const facts = [`${count(one.members)}${users ? ` of ${count(users)} users` : " members"}`];
        if (one.membership !== undefined) facts.unshift(`membership ${percent(one.membership)}`);
        return html`<li key=${one.community}>
          <div class="source">
            <${Swatch} colour=${colour} />
            <button type="button" class="link" onClick=${() => onCommunity(one.community)}>
              Community ${one.community}${one.name ? `: ${one.name}` : ` around ${one.anchor}`}
            </button>
            <b>${percent(one.weight)}</b>
          </div>
          <${Bar} share=${one.weight} colour=${cssColour(colour)} />
          <p class="facts">${facts.join(" · ")}</p>
          <details>
            <summary>What it says</summary>
            <${Says} items=${one.items} known=${one.known_for} raised=${one.raises} />
          </details>
        </li>`;
      })}
      <li>
        <div class="source"><${Swatch} /> <span>The global model</span> <b>${percent(inside.global.weight)}</b></div>
        <${Bar} share=${inside.global.weight} colour=${cssColour()} />
        <details>
          <summary>What it says</summary>
          <${Says} items=${inside.global.items} />
        </details>
      </li>
    </ul>
    ${more}`;
}

function Parts({ parts, ...rest }) {
  return html`<ul class="sources">
    ${parts.map(
      (part) =>
        html`<li key=${part.part}>
          <div class="source"><span>${part.part}</span> <b>${percent(part.weight)}</b></div>
          <${Bar} share=${part.weight} />
          <details>
            <summary>What it says</summary>
            <${Says} items=${part.items} />
          </details>
          ${part.inside?.communities && html`<${Sources} inside=${part.inside} ...${rest} />`}
        </li>`,
    )}
  </ul>`;
}

function History({ history, counts }) {
  const newest = history.map((item, place) => ({ ...item, counts: counts?.[place] ?? 1 })).reverse();
  const [shown, more] = useFirst(newest, 15);
  const most = Math.max(...newest.map((one) => one.counts), 1e-9);
  if (!newest.length) return html`<p>No history.</p>`;
  return html`<ol class="history">
      ${shown.map(
        (one) =>
          html`<li key=${String(one.item)}>
            <span class="title" title=${String(one.item)}>${titleOf(one)}</span>
            <${Bar} share=${one.counts / most} />
            <span class="value">${one.counts.toFixed(2)}</span>
          </li>`,
      )}
    </ol>
    ${more}`;
}

// who is {user} or {items}; row is the user's, for an exported page.
export function Answer({ source, model, who, row, colours, users, onCommunity, onHistory }) {
  const [recency, setRecency] = useState(null);
  const [share, setShare] = useState(null);
  const body = { model: model.name, n: 10, ...who };
  if (recency !== null) body.recency = recency ? String(recency) : "none";
  if (share !== null) body.global_share = share;
  const ask = async () => {
    const found = await source.explain(row, body);
    onHistory?.(found.history);
    return found;
  };
  const answer = useAnswer(ask, JSON.stringify([body, model.fingerprint]), 120);
  const found = answer.data;
  const status = answer.busy ? "" : answer.error ? "" : `${count(found.items.length)} items listed`;
  const inside = { colours, users, onCommunity };
  return html`<div class="answer" aria-busy=${String(answer.busy)}>
    ${
      !source.exported &&
      html`<${Controls} model=${model} recency=${recency} share=${share} onRecency=${setRecency} onShare=${setShare} />`
    }
    <p class="unseen" role="status">${status}</p>
    ${answer.error && html`<${Failure} error=${answer.error} />`}
    ${!found && answer.busy && html`<p class="waiting">The list is on its way …</p>`}
    ${
      found &&
      html`<div class="columns">
        <section class="list">
          <h3>Recommended</h3>
          <${Notes} notes=${found.notes} />
          ${!found.items.length && html`<p>Nothing is left to recommend.</p>`}
          <${Items}
            items=${found.items}
            value=${(item) => html`<span class="unseen">score </span>${figure(item.score)}`}
            below=${(item) => html`<${Because} item=${item} />`}
          />
          <p class="facts">
            ${
              found.is_exact
                ? "Shares are of all that speaks for an item; for and against add up to its score."
                : "Shares by leave-one-out: how far the score falls without the item."
            }
          </p>
        </section>
        ${
          found.communities &&
          html`<section>
            <h3>Who answers</h3>
            <${Sources} inside=${found} ...${inside} />
          </section>`
        }
        ${
          found.parts &&
          html`<section>
            <h3>Who answers</h3>
            <${Parts} parts=${found.parts} ...${inside} />
          </section>`
        }
        <section>
          <h3>History, newest first</h3>
          <p class="facts">The figure is what an item counts.</p>
          <${History} history=${found.history} counts=${found.counts} />
        </section>
      </div>`
    }
  </div>`;
}
