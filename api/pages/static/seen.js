// Does something once, when a place comes near the screen.
export function whenSeen(place, act) {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    act();
  }, { rootMargin: "300px" });
  observer.observe(place);
}
