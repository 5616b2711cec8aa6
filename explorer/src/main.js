// The explorer: which model, which view, the theme, the health line. The view is in the address, so it can be linked.

import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { chooseColours } from "./colours.js";
import { MapView } from "./map.js";
import { Community, Overview, User } from "./panels.js";
import { count, Failure, html, SearchBox, titleOf, useAnswer } from "./parts.js";
import { Playground } from "./playground.js";
import { openSource } from "./source.js";

const HEALTH_SECONDS = 5;
const source = openSource();

function readHash() {
  const values = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d+$/.test(values.get(name) ?? "") ? Number(values.get(name)) : null);
  let items = null;
  try {
    items = values.has("items") ? JSON.parse(values.get("items") || "[]") : null;
  } catch {
    items = [];
  }
  const isId = (one) => typeof one === "string" || typeof one === "number";
  if (items !== null) items = Array.isArray(items) ? items.filter(isId) : [];
  return { model: values.get("model"), user: number("user"), community: number("community"), items };
}

function useView() {
  const [view, setView] = useState(readHash);
  useEffect(() => {
    const read = () => setView(readHash());
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  const go = (changes) => {
    const wanted = { model: view.model, ...changes };
    const values = Object.entries(wanted).filter(([, value]) => value !== null && value !== undefined);
    location.hash = new URLSearchParams(
      values.map(([name, value]) => [name, name === "items" ? JSON.stringify(value) : value]),
    );
  };
  return [view, go];
}

// Storage may be forbidden, as in some pages opened from a file.
function stored(act) {
  try {
    return act(localStorage);
  } catch {
    return null;
  }
}

function useDark() {
  const system = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [chosen, setChosen] = useState(() => stored((storage) => storage.getItem("loca-theme")));
  const [preferred, setPreferred] = useState(system.matches);
  useEffect(() => {
    const read = () => setPreferred(system.matches);
    system.addEventListener("change", read);
    return () => system.removeEventListener("change", read);
  }, []);
  const dark = chosen ? chosen === "dark" : preferred;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const toggle = () => {
    const wanted = dark ? "light" : "dark";
    stored((storage) => storage.setItem("loca-theme", wanted));
    setChosen(wanted);
  };
  return [dark, toggle];
}

// The models and the state of the service, again every few seconds while the page is seen.
function useHealth() {
  const [health, setHealth] = useState({});
  const read = async () => {
    try {
      const data = await source.models();
      setHealth({ data });
    } catch (error) {
      setHealth((last) => ({ data: last.data, error }));
    }
  };
  useEffect(() => {
    read();
    if (source.exported) return undefined;
    const timer = setInterval(() => document.visibilityState === "visible" && read(), 1000 * HEALTH_SECONDS);
    return () => clearInterval(timer);
  }, []);
  return [health, read];
}

function TokenForm({ error, onToken }) {
  const save = (event) => {
    event.preventDefault();
    sessionStorage.setItem("loca-token", event.target.elements.token.value.trim());
    onToken();
  };
  return html`<main class="token">
    <h2>A token is needed</h2>
    <${Failure} error=${error} />
    <form onSubmit=${save}>
      <label class="field"><span>Token</span><input name="token" type="password" autocomplete="off" required /></label>
      <button type="submit">Go on</button>
    </form>
    <p class="facts">It stays in this tab and is forgotten when the tab closes.</p>
  </main>`;
}

function HealthLine({ health, model }) {
  const { data, error } = health;
  const time = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(1)} ms`);
  return html`<footer>
    ${
      model &&
      html`<dl>
        <div>
          <dt>model</dt>
          <dd>${model.name} (${model.label})</dd>
        </div>
        <div>
          <dt>fingerprint</dt>
          <dd><code>${model.fingerprint}</code></dd>
        </div>
        <div>
          <dt>users</dt>
          <dd>${count(model.users)}</dd>
        </div>
        <div>
          <dt>items</dt>
          <dd>${count(model.items)}</dd>
        </div>
        ${
          !source.exported &&
          html`<div>
              <dt>requests</dt>
              <dd>${count(data.requests)}</dd>
            </div>
            <div>
              <dt>p50</dt>
              <dd>${time(data.p50_ms)}</dd>
            </div>
            <div>
              <dt>p99</dt>
              <dd>${time(data.p99_ms)}</dd>
            </div>
            <div>
              <dt>waiting</dt>
              <dd>${count(data.queue)}</dd>
            </div>`
        }
        <div>
          <dt>loca</dt>
          <dd>${data.version}</dd>
        </div>
      </dl>`
    }
    ${!source.exported && html`<a href="docs">HTTP interface</a>`}
    ${
      source.exported &&
      html`<p>An exported page: it has no service behind it, so there are no sliders and no playground.</p>`
    }
    ${model?.error && html`<p class="failure">A newer version was not loaded: ${model.error}</p>`}
    ${error && html`<${Failure} error=${error} />`}
  </footer>`;
}

function findCommunities(communities, query) {
  const wanted = query.toLowerCase();
  return communities
    .filter((one) => String(one.community) === wanted || one.name.toLowerCase().includes(wanted))
    .slice(0, 6);
}

function Explorer() {
  const [health, readHealth] = useHealth();
  const [view, go] = useView();
  const [dark, toggleDark] = useDark();
  const panel = useRef(null);
  const models = health.data?.models ?? [];
  const model = models.find((one) => one.name === view.model) ?? models.find((one) => one.name === health.data.default);
  const version = JSON.stringify([model?.name, model?.fingerprint]);
  const about = useAnswer(async () => (model ? source.communities(model.name) : null), version);
  const points = useAnswer(async () => (model ? source.map(model.name) : null), version);
  const user = useAnswer(
    async () => (model && view.user !== null ? source.user(model.name, view.user) : null),
    JSON.stringify([version, view.user]),
  );
  const communities = about.data?.communities ?? [];
  const colours = useMemo(() => chooseColours(communities), [about.data]);
  const chosen = user.data?.row === view.user && user.data.model === model.name ? user.data : null;
  const playing = view.items !== null && !source.exported;
  const name =
    view.user !== null
      ? `User ${chosen?.user ?? view.user}`
      : view.community !== null
        ? `Community ${view.community}`
        : "";
  useEffect(() => {
    document.title = [playing ? "Playground" : name, "LOCA explorer"].filter(Boolean).join(" – ");
  }, [playing, name]);
  useEffect(() => panel.current?.scrollTo(0, 0), [view]);
  if (health.error?.status === 401) {
    const again = () => (sessionStorage.getItem("loca-token") ? location.reload() : readHealth());
    return html`<header><h1>LOCA explorer</h1></header>
      <${TokenForm} error=${health.error} onToken=${again} />`;
  }
  if (!model) {
    return html`<header><h1>LOCA explorer</h1></header>
      <main>
        ${health.error ? html`<${Failure} error=${health.error} />` : html`<p class="waiting">Loading …</p>`}
      </main>`;
  }
  const find = async (query) => {
    const found = await source.search(model.name, query, "all");
    return [
      ...found.users.map((one) => ({ key: `u${one.row}`, text: String(one.user), kind: "user", user: one.row })),
      ...findCommunities(communities, query).map((one) => ({
        key: `c${one.community}`,
        text: `${one.community}: ${one.name}`,
        kind: "community",
        community: one.community,
      })),
      ...found.items.map((one) => ({ key: `i${one.item}`, text: titleOf(one), kind: "item", items: [one.item] })),
    ];
  };
  const openUser = (row) => go({ user: row });
  const openCommunity = (number) => go({ community: number });
  const close = () => go({});
  return html`<a
      class="skip"
      href="#panel"
      onClick=${(event) => {
        event.preventDefault();
        document.getElementById("panel").focus();
      }}
      >Skip to the results</a
    >
    <header>
      <h1>LOCA explorer</h1>
      <${SearchBox}
        label=${source.exported ? "Search users and communities" : "Search users, items and communities"}
        placeholder="Search"
        find=${find}
        onChoose=${({ user, community, items }) => go({ user, community, items })}
      />
      <nav aria-label="Views">
        <button type="button" aria-current=${playing ? undefined : "page"} onClick=${close}>Map</button>
        ${
          !source.exported &&
          html`<button type="button" aria-current=${playing ? "page" : undefined} onClick=${() => go({ items: [] })}>
            Playground
          </button>`
        }
        ${
          models.length > 1 &&
          !playing &&
          html`<label class="field"
            ><span>Model</span>
            <select value=${model.name} onChange=${(event) => go({ ...view, model: event.target.value })}>
              ${models.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}
            </select></label
          >`
        }
        <button type="button" class="theme" onClick=${toggleDark}>
          ${dark ? "Light" : "Dark"}<span class="unseen"> theme</span>
        </button>
      </nav>
    </header>
    <main class=${playing ? "playing" : "exploring"}>
      <div class="maphold" hidden=${playing}>
        <${MapView}
          points=${points.data}
          error=${points.error}
          communities=${communities}
          colours=${colours}
          user=${chosen}
          community=${view.community}
          dark=${dark}
          onUser=${openUser}
          onCommunity=${openCommunity}
        />
      </div>
      <div class="panel" id="panel" tabindex="-1" ref=${panel}>
        ${
          playing
            ? html`<${Playground}
                source=${source}
                models=${models}
                model=${model}
                items=${view.items}
                onItems=${(items) => go({ items })}
                onModel=${(name) => go({ items: view.items, model: name })}
                onCommunity=${(name, number) => go({ community: number, model: name })}
              />`
            : view.user !== null
              ? html`<${User}
                  key=${`${version} ${view.user}`}
                  source=${source}
                  model=${model}
                  row=${view.user}
                  user=${chosen}
                  error=${user.error}
                  communities=${communities}
                  users=${about.data?.users}
                  colours=${colours}
                  onCommunity=${openCommunity}
                  onClose=${close}
                />`
              : view.community !== null
                ? html`<${Community}
                    key=${`${version} ${view.community}`}
                    source=${source}
                    model=${model}
                    number=${view.community}
                    points=${points.data}
                    colours=${colours}
                    onUser=${openUser}
                    onClose=${close}
                  />`
                : about.data
                  ? html`<${Overview}
                      about=${about.data}
                      notes=${model.notes}
                      colours=${colours}
                      onCommunity=${openCommunity}
                    />`
                  : about.error && html`<${Failure} error=${about.error} />`
        }
      </div>
    </main>
    <${HealthLine} health=${health} model=${model} />`;
}

render(html`<${Explorer} />`, document.getElementById("explorer"));
