// Sends each chosen file as the body of a request, so that neither page nor server holds it whole.
const MOST_LISTED = 40;

const element = (tag, className) => {
  const made = document.createElement(tag);
  made.className = className;
  return made;
};

const sized = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB"];
  let power = 0;
  while (bytes >= 1024 && power < units.length - 1) { bytes /= 1024; power += 1; }
  return `${power ? bytes.toFixed(1) : bytes} ${units[power]}`;
};

function send(file, number, { data }, on) {
  const request = new XMLHttpRequest();
  request.open("PUT", `/traceq/upload/${encodeURIComponent(data.batch)}/${number}`);
  request.setRequestHeader("X-Traceq-Token", data.token);
  request.setRequestHeader("X-Traceq-Name", encodeURIComponent(file.name));
  request.upload.onprogress = (event) => on.progress(event.loaded / Math.max(1, event.total));
  request.onload = () => (request.status === 204 ? on.done() : on.failed(request.responseText));
  request.onerror = () => on.failed("the connection was lost");
  request.onabort = () => on.failed("cancelled");
  request.send(file);
  return request;
}

export default function (component) {
  const { parentElement, data, setStateValue } = component;
  const drop = parentElement.querySelector(".drop");
  const input = parentElement.querySelector("input");
  const list = parentElement.querySelector(".files");
  parentElement.querySelector(".hint").textContent =
    `torch.profiler traces and Nsight Systems exports or reports, up to ${sized(data.limit_bytes)} ` +
    "each; plain, .gz or .zst; one file per rank or several ranks in one";
  // A page that is left and opened again goes on with the same batch.
  const batches = (window.traceqUploads ??= {});
  const state = (batches[data.batch] ??= { queue: [], rows: [], next: 0, listed: 0, failed: 0 });
  state.component = component;
  list.replaceChildren(...state.rows);

  const say = () => state.component.setStateValue("progress", {
    on_the_way: state.queue.length + (state.current ? 1 : 0),
    failed: state.failed,
  });

  const advance = () => {
    state.current = null;
    const item = state.queue.shift();
    if (!item) { say(); return; }
    state.current = send(item.file, item.number, state.component, {
      progress: (share) => { item.bar.value = share; },
      done: () => { item.bar.value = 1; item.state.textContent = "uploaded"; advance(); },
      failed: (why) => {
        state.failed += 1;
        item.row.classList.add("failed");
        item.state.textContent = why;
        if (!state.rows.includes(item.row)) state.show(item.row);
        advance();
      },
    });
  };

  state.show = (row) => { state.rows.push(row); list.append(row); };

  const add = (files) => {
    for (const file of files) {
      const row = element("li", "file");
      const name = element("span", "name");
      name.textContent = file.name;
      name.title = file.name;
      const bar = element("progress", "bar");
      bar.max = 1;
      bar.value = 0;
      const told = element("span", "state");
      told.textContent = sized(file.size);
      row.append(name, bar, told);
      if (state.listed++ < MOST_LISTED) state.show(row);
      state.queue.push({ file, number: state.next++, row, bar, state: told });
    }
    if (!state.current && state.queue.length) { advance(); say(); }
  };

  input.onchange = () => { add([...input.files]); input.value = ""; };
  drop.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") input.click(); };
  drop.ondragover = (event) => { event.preventDefault(); drop.classList.add("over"); };
  drop.ondragleave = () => drop.classList.remove("over");
  drop.ondrop = (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    add([...event.dataTransfer.files]);
  };
}
