// The playground: a history made of titles, and what one or two models answer to it.

import { useEffect, useReducer, useState } from "preact/hooks";
import { Answer } from "./answer.js";
import { chooseColours } from "./colours.js";
import { html, SearchBox, titleOf, useAnswer } from "./parts.js";

const titles = new Map();

function ModelSelect({ label, models, name, without, onModel }) {
  return html`<label class="field">
    <span>${label}</span>
    <select value=${name} onChange=${(event) => onModel(event.target.value)}>
      ${without && html`<option value="">none</option>`}
      ${models.map((one) => html`<option key=${one.name} value=${one.name}>${one.name} (${one.label})</option>`)}
    </select>
  </label>`;
}

function Column({ source, model, items, named, onCommunity, onHistory }) {
  const about = useAnswer(() => source.communities(model.name), JSON.stringify([model.name, model.fingerprint]));
  const colours = chooseColours(about.data?.communities ?? []);
  return html`<section class="model" aria-label=${`Answer of ${model.name}`}>
    ${named && html`<h3>${model.name}</h3>`}
    <${Answer}
      source=${source}
      model=${model}
      who=${{ items }}
      colours=${colours}
      users=${about.data?.users}
      onCommunity=${(number) => onCommunity(model.name, number)}
      onHistory=${onHistory}
    />
  </section>`;
}

export function Playground({ source, models, model, items, onItems, onModel, onCommunity }) {
  const [second, setSecond] = useState("");
  const beside = models.find((one) => one.name === second);
  const [, renew] = useReducer((times) => times + 1, 0);
  useEffect(() => window.scrollTo(0, 0), []);
  const find = async (query) => {
    const found = await source.search(model.name, query, "items");
    return found.items.map((one) => ({ key: String(one.item), text: titleOf(one), kind: String(one.item), item: one }));
  };
  const learn = (history) => {
    for (const one of history) titles.set(one.item, titleOf(one));
    renew();
  };
  const remove = (place) => onItems(items.filter((_, other) => other !== place));
  return html`<div class="playground">
    <h2>Playground</h2>
    <p class="facts">
      Name what somebody took, oldest first, and see what is recommended and which communities answer.
    </p>
    <${SearchBox}
      label="Add an item by its title or id"
      clearLabel
      find=${find}
      onChoose=${(option) => {
        learn([option.item]);
        onItems([...items.filter((one) => one !== option.item.item), option.item.item]);
      }}
    />
    ${
      items.length > 0
        ? html`<ol class="chosen" aria-label="History, oldest first">
            ${items.map(
              (item, place) =>
                html`<li key=${String(item)}>
                  <span>${titles.get(item) ?? String(item)}</span>
                  <button
                    type="button"
                    aria-label=${`Remove ${titles.get(item) ?? item}`}
                    onClick=${() => remove(place)}
                  >
                    ×
                  </button>
                </li>`,
            )}
            <li><button type="button" class="quiet" onClick=${() => onItems([])}>Clear</button></li>
          </ol>`
        : html`<p class="waiting">No item yet.</p>`
    }
    ${
      models.length > 1 &&
      html`<div class="models">
        <${ModelSelect} label="Model" models=${models} name=${model.name} onModel=${onModel} />
        <${ModelSelect} label="Beside it" models=${models} name=${second} without onModel=${setSecond} />
      </div>`
    }
    ${
      items.length > 0 &&
      html`<div class=${beside ? "beside two" : "beside"}>
        ${[model, beside]
          .filter(Boolean)
          .map(
            (one, place) =>
              html`<${Column}
                key=${`${place} ${one.name}`}
                source=${source}
                model=${one}
                items=${items}
                named=${Boolean(beside)}
                onCommunity=${onCommunity}
                onHistory=${place ? undefined : learn}
              />`,
          )}
      </div>`
    }
  </div>`;
}
