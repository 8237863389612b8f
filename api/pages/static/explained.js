// What explains the winner: fetched when its place comes near the screen, unless the server had it already.
import { element } from "./format.js";
import { showCourse } from "./timeline.js";
import { whenSeen } from "./seen.js";

async function fill(place) {
  const from = place.dataset.from, says = element("p", { role: "status" }, "The server compiles the winner and models its time ...");
  place.append(says);
  try {
    const answer = await fetch(from);
    if (!answer.ok) throw new Error((await answer.json()).detail);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("explained");
    place.replaceWith(document.importNode(found, true));
    listen();
  } catch (error) {
    says.textContent = `That failed: ${error.message}`;
  }
}

function listen() {
  const course = document.getElementById("course");
  if (course?.dataset.trace) whenSeen(course, () => showCourse(course));
}

const place = document.querySelector("#explained[data-from]");
if (place) whenSeen(place, () => fill(place));
else listen();
