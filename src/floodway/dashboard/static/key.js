// The key that requests are signed with: asked for once, kept in this page alone, with the server's reason if refused.

const $ = (id) => document.getElementById(id);
let key = null, asking = null;

export const currentKey = () => key;
$("key-cancel").addEventListener("click", () => $("ask-key").close("cancel"));

// A request signed with `used` was refused. Several refused at once share one question; one that was signed with a key
// that has been replaced meanwhile is simply sent again.
export function askKey(used, told) {
  if (used !== key) return Promise.resolve();
  asking ??= question(used && told.message).finally(() => { asking = null; });
  return asking;
}

async function question(problem) {
  for (;;) {
    if (await dialog(problem)) return;
    await offered();
  }
}

function dialog(problem) {
  const box = $("ask-key");
  $("key").value = "";
  $("key-problem").hidden = !problem;
  $("key-problem").textContent = problem || "";
  box.returnValue = "cancel";
  box.showModal();
  $("key").focus();
  return new Promise((done) => {
    box.addEventListener("close", () => {
      const given = box.returnValue === "use" ? $("key").value.trim() : "";
      $("key").value = "";
      if (given) key = given;
      done(Boolean(given));
    }, { once: true });
  });
}

// Who closes the question is not asked again at once: the page says what it lacks, and waits for the button.
function offered() {
  const button = $("give-key");
  $("connection").textContent = "no key was given: nothing is shown";
  $("connection").classList.add("lost");
  button.hidden = false;
  return new Promise((done) => {
    button.addEventListener("click", () => { button.hidden = true; done(); }, { once: true });
  });
}
