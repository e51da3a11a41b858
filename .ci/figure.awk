# SPDX-License-Identifier: Apache-2.0
#
# figure.awk - a picture of the documentation: Documentation/figures/X.fig to X.svg
#
#	awk -f .ci/figure.awk Documentation/figures/X.fig >Documentation/figures/X.svg
#
# Each line draws one thing, in this order; lengths in pixels:
#
#	size W H			must be the first line
#	title TEXT			text for screen readers
#	box X Y W H KIND TEXT|TEXT..	lines in its middle, the first one bold
#	frame X Y W H KIND TEXT		a box around other things; its name in the upper left corner
#	text X Y ALIGN TEXT		ALIGN: left, middle, right, or bold, small, small-left
#	cells X Y W H LETTERS		a row of small boxes, a letter for each kind:
#					. free  o open  s sealed  c cached  h host  a area  x gone
#	arrow X Y X Y.. [TEXT]		a line with a head through these points
#	line X Y X Y..			a line without a head; dash and darrow are dashed
#	curve X Y X Y X Y X Y		an arrow along a Bezier curve
#
# KIND is one of: client, daemon, device, host, area, operator, plain, free.
# A kind has the same colours in all pictures, for light and for dark.  The background
# is drawn too, so that a picture is legible on any page.

function esc(s)
{
	gsub(/&/, "\\&amp;", s)
	gsub(/</, "\\&lt;", s)
	gsub(/>/, "\\&gt;", s)
	return s
}

# The text behind the first n words.
function rest(n,    s, i)
{
	s = $0
	for (i = 0; i < n; i++)
		sub(/^[ \t]*[^ \t]+/, "", s)
	sub(/^[ \t]+/, "", s)
	return s
}

function wrong(why)
{
	print FILENAME ":" FNR ": " why >"/dev/stderr"
	bad = 1
	exit 1
}

function kind(k)
{
	if (k !~ /^(client|daemon|device|host|area|operator|plain|free)$/)
		wrong("no kind is called " k)
	return k
}

# fits LEFT RIGHT: the text must lie between them, in a wide font (DejaVu Sans) too
function fits(x, class, anchor, s, left, right,    width)
{
	width = length(s) * (class == "small" ? 6.4 : class == "b" ? 8.2 : 7.3)
	x -= anchor == "middle" ? width / 2 : anchor == "end" ? width : 0
	if (x < left || x + width > right)
		wrong("\"" s "\" is too long by " (x + width > right ? x + width - right : left - x))
}

function put_text(x, y, class, anchor, s)
{
	fits(x, class, anchor, s, 4, w - 4)
	printf "<text x=\"%s\" y=\"%s\"%s text-anchor=\"%s\">%s</text>\n", x, y,
		class == "" ? "" : " class=\"" class "\"", anchor, esc(s)
}

# points FROM: "x,y x,y" of the numbers from word FROM on; nr_points counts them
function points(from,    s)
{
	s = ""
	for (nr_points = 0; $(from + 1) ~ /^[0-9.]+$/; from += 2) {
		s = s (s == "" ? "" : " ") $from "," $(from + 1)
		nr_points++
	}
	if (nr_points < 2)
		wrong("a line has two ends")
	return s
}

function palette(dark)
{
	if (dark) {
		ground = "#161b22"; ink = "#e6edf3"; faint = "#9aa7b4"; lines = "#8b98a5"
		col["client"] = "#3b2a55"; edge["client"] = "#b794f6"
		col["daemon"] = "#1d2733"; edge["daemon"] = "#8b98a5"
		col["device"] = "#123a63"; edge["device"] = "#58a6ff"
		col["host"] = "#0f3d2e"; edge["host"] = "#3fb98a"
		col["area"] = "#4a300b"; edge["area"] = "#e3a13c"
		col["operator"] = "#4a1f33"; edge["operator"] = "#f08bb4"
		col["plain"] = "#21262d"; edge["plain"] = "#6e7a87"
		col["free"] = "#161b22"; edge["free"] = "#6e7a87"
		col["open"] = "#58a6ff"; col["sealed"] = "#1f6feb"; col["cached"] = "#1b3f6b"; col["gone"] = "#30363d"
	} else {
		ground = "#ffffff"; ink = "#1c2430"; faint = "#56616e"; lines = "#5b6773"
		col["client"] = "#efe7fb"; edge["client"] = "#7a4fc4"
		col["daemon"] = "#f1f4f7"; edge["daemon"] = "#5b6773"
		col["device"] = "#dcebfb"; edge["device"] = "#1f6fc4"
		col["host"] = "#dbf3e8"; edge["host"] = "#1f8a5f"
		col["area"] = "#fcebcd"; edge["area"] = "#b9770e"
		col["operator"] = "#fbe3ec"; edge["operator"] = "#b83a6c"
		col["plain"] = "#ffffff"; edge["plain"] = "#8a95a1"
		col["free"] = "#ffffff"; edge["free"] = "#8a95a1"
		col["open"] = "#8fc1f5"; col["sealed"] = "#2f7bd0"; col["cached"] = "#c9def5"; col["gone"] = "#e3e7eb"
	}
}

function put_style(    k)
{
	printf ".ground{fill:%s}text{fill:%s}.small{fill:%s}.l{stroke:%s}.head{fill:%s}", ground, ink, faint, lines, lines
	n = split("client daemon device host area operator plain free", list, " ")
	for (k = 1; k <= n; k++)
		printf ".%s{fill:%s;stroke:%s}", list[k], col[list[k]], edge[list[k]]
	printf ".c-o{fill:%s;stroke:%s}.c-s{fill:%s;stroke:%s}.c-c{fill:%s;stroke:%s}", col["open"], edge["device"],
		col["sealed"], edge["device"], col["cached"], edge["device"]
	printf ".c-h{fill:%s;stroke:%s}.c-a{fill:%s;stroke:%s}.c-x{fill:%s;stroke:%s}", edge["host"], edge["host"],
		edge["area"], edge["area"], col["gone"], edge["plain"]
}

/^#/ || NF == 0 { next }

$1 == "size" {
	w = $2
	h = $3
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\" width=\"%s\" height=\"%s\" role=\"img\"", w, h, w, h
	next
}

$1 == "title" {
	printf " aria-label=\"%s\">\n<title>%s</title>\n<style>", esc(rest(1)), esc(rest(1))
	printf "text{font:13px/1.2 Helvetica,Arial,'DejaVu Sans',sans-serif}.b{font-weight:bold}.small{font-size:11.5px}"
	printf ".l{fill:none;stroke-width:1.6}.d{stroke-dasharray:5 4}.frame{fill-opacity:.45}.free{stroke-dasharray:4 3}"
	palette(0)
	put_style()
	printf "@media (prefers-color-scheme:dark){"
	palette(1)
	put_style()
	print "}</style>"
	print "<defs><marker id=\"a\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\"" \
		" orient=\"auto-start-reverse\"><path class=\"head\" d=\"M0 0L10 5L0 10z\"/></marker></defs>"
	printf "<rect class=\"ground\" width=\"%s\" height=\"%s\" rx=\"8\"/>\n", w, h
	next
}

$1 == "box" || $1 == "frame" {
	frame = $1 == "frame"
	printf "<rect class=\"%s%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"6\" stroke-width=\"1.4\"/>\n", kind($6),
		frame ? " frame" : "", $2, $3, $4, $5
	if (frame) {
		put_text($2 + 12, $3 + 21, "b", "start", rest(6))
		next
	}
	n = split(rest(6), part, "|")
	for (i = 1; i <= n; i++) {
		fits($2 + $4 / 2, i == 1 ? "b" : "small", "middle", part[i], $2, $2 + $4)
		put_text($2 + $4 / 2, $3 + $5 / 2 + 5 + (i - (n + 1) / 2) * 17, i == 1 ? "b" : "small", "middle", part[i])
	}
	next
}

$1 == "text" {
	if ($4 !~ /^(left|middle|right|bold|small|small-left)$/)
		wrong("text is not aligned " $4)
	put_text($2, $3, $4 == "bold" ? "b" : $4 ~ /^small/ ? "small" : "",
		$4 ~ /left|bold/ ? "start" : $4 == "right" ? "end" : "middle", rest(4))
	next
}

$1 == "cells" {
	n = length($6)
	for (i = 1; i <= n; i++) {
		c = substr($6, i, 1)
		if (c !~ /[.oschax_]/)
			wrong("no cell is called " c)
		if (c != "_")
			printf "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"2\"/>\n",
				c == "." ? "free" : "c-" c, $2 + (i - 1) * ($4 + 3), $3, $4, $5
	}
	next
}

$1 ~ /^(arrow|line|dash|darrow)$/ {
	s = points(2)
	printf "<polyline class=\"l%s\" points=\"%s\"%s/>\n", $1 ~ /^d/ ? " d" : "", s,
		$1 ~ /arrow/ ? " marker-end=\"url(#a)\"" : ""
	next
}

$1 == "curve" {
	printf "<path class=\"l\" d=\"M%s %sC%s %s %s %s %s %s\" marker-end=\"url(#a)\"/>\n", $2, $3, $4, $5, $6, $7, $8, $9
	next
}

{ wrong("what is \"" $1 "\"?") }

END {
	if (bad)
		exit 1
	print "</svg>"
}
