"""The widgets of the terminal UI: lists, banners, dialogs, and the colours they are drawn in."""
