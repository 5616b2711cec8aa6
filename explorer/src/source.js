// Where the page's answers come from: the service, or the data inside an exported page.

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
  }
}

const MAGIC = "LOCAMAP1";

export function readMap(buffer) {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.subarray(0, 8)) !== MAGIC) throw new Problem(0, "The map", "not a LOCA map");
  const [users] = new Uint32Array(buffer, 8, 2);
  return {
    users,
    places: new Float32Array(buffer, 16, 2 * users),
    rows: new Uint32Array(buffer, 16 + 8 * users, users),
    communities: new Uint16Array(buffer, 16 + 12 * users, users),
  };
}

// Addresses are relative, so that the page works below any path.
async function ask(path, body) {
  const headers = {};
  const token = sessionStorage.getItem("loca-token");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  } catch (error) {
    throw new Problem(0, "The service does not answer", error.message);
  }
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => ({}));
  throw new Problem(reply.status, problem.title ?? `Status ${reply.status}`, problem.detail);
}

const json = async (path, body) => (await ask(path, body)).json();
const query = (values) => new URLSearchParams(values).toString();

const service = {
  exported: false,
  models: () => json("v1/models"),
  communities: (model) => json(`v1/communities?${query({ model })}`),
  community: (model, number) => json(`v1/communities/${number}?${query({ model, n: 10 })}`),
  map: async (model) => readMap(await (await ask(`v1/map?${query({ model })}`)).arrayBuffer()),
  user: (model, row) => json(`v1/map/users/${row}?${query({ model })}`),
  search: (model, q, what) => json(`v1/search?${query({ model, q, what, n: 12 })}`),
  explain: (row, body) => json("v1/explain", body),
};

function exportedSource(data) {
  const part = (name, key) => {
    const found = data[name]?.[key];
    if (!found) throw new Problem(404, "Not in this file", `the exported page has no ${name} ${key}`);
    return found;
  };
  return {
    exported: true,
    models: async () => data.models,
    communities: async () => data.communities,
    community: async (model, number) => part("community", number),
    map: async () => readMap(Uint8Array.from(atob(data.map), (one) => one.charCodeAt(0)).buffer),
    user: async (model, row) => {
      if (!data.users[row]) {
        const count = Object.keys(data.users).length.toLocaleString("en");
        throw new Problem(404, "Not in this file", `the exported page has ${count} users, and not this one`);
      }
      return data.users[row].user;
    },
    search: async (model, q) => {
      const users = Object.values(data.users).map((one) => ({ user: one.user.user, row: one.user.row }));
      return { users: users.filter((one) => String(one.user).includes(q)).slice(0, 12), items: [] };
    },
    explain: async (row) => part("users", row).explain,
  };
}

export function openSource() {
  const data = document.getElementById("loca-data");
  return data ? exportedSource(JSON.parse(data.textContent)) : service;
}
