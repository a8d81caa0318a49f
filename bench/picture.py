# SPDX-License-Identifier: GPL-2.0
"""Pictures of figures, as SVG."""

import html

INK, SOFT, LINE = "#1f2933", "#616e7c", "#e4e7eb"
BAR = 22


class Picture:
    def __init__(self):
        self.parts = []

    def text(self, x, y, words, size=13, fill=INK, weight="normal", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" '
                          f'font-weight="{weight}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def box(self, x, y, w, h, fill, r=2):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0):.1f}" height="{h:.1f}" '
                          f'rx="{r}" fill="{fill}"/>')

    def line(self, x1, y1, x2, y2, color=INK, width=1.2):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{color}" stroke-width="{width}"/>')

    def bar(self, x, y, scale, s, color, words):
        """A lab.summary(), with a whisker from its lowest to its highest value."""
        self.box(x, y, s["median"] * scale, BAR, color)
        low, high, mid = x + s["low"] * scale, x + s["high"] * scale, y + BAR / 2
        self.line(low, mid, high, mid)
        for end in (low, high):
            self.line(end, mid - 4, end, mid + 4)
        self.text(max(high, x + s["median"] * scale) + 6, mid + 4.5, words, 12.5)

    def path(self, points, color, width=2):
        """A line through POINTS, (x, y) each."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}"/>')

    def svg(self, width, height):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" font-family="DejaVu Sans, Verdana, sans-serif">\n'
                f'<rect width="{width}" height="{height}" fill="white"/>\n' +
                "\n".join(self.parts) + "\n</svg>\n")
