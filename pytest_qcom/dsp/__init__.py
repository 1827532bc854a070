"""The Hexagon DSP of the Snapdragon 845: one HVX kernel, declared once, and where it runs."""
