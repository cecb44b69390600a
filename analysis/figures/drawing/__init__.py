"""What figures are drawn with: axes, captions, legends, marks, panels, styles, tasks."""
