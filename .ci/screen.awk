# SPDX-License-Identifier: Apache-2.0
#
# screen.awk - a picture of a terminal: Documentation/figures/X.screen to X.svg
#
#	awk -f .ci/screen.awk Documentation/figures/X.screen >Documentation/figures/X.svg
#
# The first line is the title, for screen readers.  The others are the lines of the
# terminal with its escapes, as `tmux capture-pane -e -p` prints them; .ci/screenshot
# makes such a file.  Text is ASCII; the eighths of a block (U+2581 to U+2588) are drawn,
# so that they are the same in every font.

BEGIN {
	W = 8
	H = 17
	split("▁ ▂ ▃ ▄ ▅ ▆ ▇ █", block, " ")
	split("#ff6b6b #5fd75f #ffd75f #6ba8ff #d787ff #5fd7ff #ffffff", palette, " ")
	ground = "#101418"
	normal = "#d0d0d0"
	plain()
}

function plain()
{
	bold = dim = reverse = 0
	colour = ""
}

function esc(s)
{
	gsub(/&/, "\\&amp;", s)
	gsub(/</, "\\&lt;", s)
	gsub(/>/, "\\&gt;", s)
	# Browsers join blanks.
	gsub(/ /, "\\&#160;", s)
	return s
}

function wrong(why)
{
	print FILENAME ":" FNR ": " why >"/dev/stderr"
	bad = 1
	exit 1
}

# set CODES: the numbers of an escape, as in "0;36"
function set(codes,    n, i, part)
{
	n = split(codes == "" ? "0" : codes, part, ";")
	for (i = 1; i <= n; i++) {
		if (part[i] == 0)
			plain()
		else if (part[i] == 1)
			bold = 1
		else if (part[i] == 2)
			dim = 1
		else if (part[i] == 7)
			reverse = 1
		else if (part[i] >= 31 && part[i] <= 37)
			colour = palette[part[i] - 30]
		else if (part[i] == 39)
			colour = ""
		else if (part[i] != 49)
			wrong("no such escape: " part[i])
	}
}

function add(s)
{
	body = body s "\n"
}

# run TEXT: cells of one look, from column col on
function run(text,    n, fg, x, y, i, c, d, words)
{
	n = length(text)
	fg = colour == "" ? normal : colour
	x = (col + 1) * W
	y = row * H
	if (reverse) {
		add(sprintf("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>", x, y, n * W, H, fg))
		fg = ground
	}
	words = text
	for (i = 1; i <= n; i++) {
		c = index(levels, substr(text, i, 1))
		if (c)
			d = d sprintf("M%d %dh%dv%.1fh-%dz", x + (i - 1) * W, y + H, W, -H * c / 8, W)
	}
	gsub("[" levels "]", " ", words)
	if (d != "")
		add(sprintf("<path fill=\"%s\" d=\"%s\"/>", fg, d))
	if (words ~ /[^ ]/)
		add(sprintf("<text x=\"%d\" y=\"%d\" fill=\"%s\"%s%s textLength=\"%d\">%s</text>", x, y + 13, fg,
			    bold ? " font-weight=\"bold\"" : "", dim ? " opacity=\"0.65\"" : "", n * W, esc(words)))
	col += n
}

NR == 1 {
	title = $0
	levels = "\001\002\003\004\005\006\007\010"
	next
}

{
	row++
	col = 0
	line = $0
	for (i = 1; i <= 8; i++)
		gsub(block[i], substr(levels, i, 1), line)
	while (line != "") {
		if (match(line, /^\033\[[0-9;]*m/)) {
			set(substr(line, 3, RLENGTH - 3))
			line = substr(line, RLENGTH + 1)
			continue
		}
		at = index(line, "\033")
		part = at ? substr(line, 1, at - 1) : line
		if (at == 1)
			wrong("an escape that is no colour")
		if (part ~ /[^ -~\001-\010]/)
			wrong("a character that cannot be drawn")
		line = substr(line, length(part) + 1)
		run(part)
	}
	most = col > most ? col : most
}

END {
	if (bad)
		exit 1
	w = (most + 2) * W
	h = (row + 2) * H
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", w, h, w, h
	gsub(/&/, "\\&amp;", title)
	printf "<title>%s</title>\n", title
	printf "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>\n", w, h, ground
	printf "<g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\">\n"
	printf "%s</g>\n</svg>\n", body
}
