// Keyboard shortcuts, which are disabled while typing.

export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea, dialog");
    if (event.key === "Escape" && typing) event.target.blur?.();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    // Enter and Space activate the focused element.
    if (event.key === "Enter" && event.target.closest("button, summary, a, [role=button]")) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}
