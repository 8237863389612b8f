const MARGIN = 300; // pixels

// Does something once, when a place comes near the screen: now if it is, since an observer tells only after a drawing.
export function whenSeen(place, act) {
  const { top, bottom } = place.getBoundingClientRect();
  if (top < innerHeight + MARGIN && bottom > -MARGIN) { act(); return; }
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    act();
  }, { rootMargin: `${MARGIN}px` });
  observer.observe(place);
}

// What an animation frame changes is painted before the next task.
export const afterPaint = (act) => requestAnimationFrame(() => setTimeout(act));
