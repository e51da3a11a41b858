// SPDX-License-Identifier: Apache-2.0
/*
 * beams.c - recorded beam searches: which beam each beam comes from
 *
 * A text of words.  "search WIDTH PROMPT LENGTH STEPS" opens a search; the
 * STEPS words after it are its steps: "." if each beam goes on, else WIDTH
 * digits, the slots from which the slots come.  A comment runs from "#" to the
 * end of its line.  The text is not trusted: numbers have limits, a parent is
 * less than the width, and a search has all of its steps.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/beams.h"

#define FILE_BYTES	(1u << 20)

/* Position of a reader: @at is the word, of @len bytes; 0: the text is over. */
struct reader {
	const char	*at;
	size_t		len;
	u32		line;
};

static bool next_word(struct reader *r)
{
	r->at += r->len;
	for (;;) {
		r->at += strspn(r->at, " \t\r");
		if (*r->at == '#')
			r->at += strcspn(r->at, "\n");
		if (*r->at != '\n')
			break;
		r->at++;
		r->line++;
	}
	r->len = strcspn(r->at, " \t\r\n");
	return r->len;
}

static int read_number(struct reader *r, u32 least, u32 most, u32 *value)
{
	u32 v = 0;
	size_t i;

	if (!next_word(r))
		return -ENODATA;
	for (i = 0; i < r->len; i++) {
		if (r->at[i] < '0' || r->at[i] > '9')
			return -EINVAL;
		v = v * 10 + (u32)(r->at[i] - '0');
		if (v > most)
			return -E2BIG;
	}
	*value = v;
	return v < least ? -EINVAL : 0;
}

static int read_step(struct reader *r, u32 width, u8 *parents)
{
	u32 i;

	if (!next_word(r))
		return -ENODATA;
	if (r->len == 1 && *r->at == '.') {
		for (i = 0; i < width; i++)
			parents[i] = (u8)i;
		return 0;
	}
	if (r->len != width)
		return -EINVAL;
	for (i = 0; i < width; i++) {
		if (r->at[i] < '0' || (u32)(r->at[i] - '0') >= width)
			return -EINVAL;
		parents[i] = (u8)(r->at[i] - '0');
	}
	return 0;
}

/* Read a search; the word "search" was read. */
static int read_search(struct reader *r, struct beam_search *s)
{
	u32 i;
	int err;

	err = read_number(r, 1, BEAMS_WIDTH, &s->width);
	if (!err)
		err = read_number(r, 0, ~0u / 20, &s->prompt);
	if (!err)
		err = read_number(r, 1, ~0u / 20, &s->length);
	if (!err)
		err = read_number(r, 1, BEAMS_STEPS, &s->nr);
	if (err)
		return err;
	s->parents = calloc(s->nr, s->width);
	if (!s->parents)
		return -ENOMEM;
	for (i = 0; i < s->nr && !err; i++)
		err = read_step(r, s->width, s->parents + i * s->width);
	return err;
}

int beams_parse(struct beams *b, const char *text, u32 *line)
{
	struct reader r = { .at = text, .line = 1 };
	int err = 0;

	while (!err && next_word(&r)) {
		if (r.len != 6 || memcmp(r.at, "search", 6))
			err = -EINVAL;
		else if (b->nr == BEAMS_SEARCHES)
			err = -E2BIG;
		else
			err = read_search(&r, &b->search[b->nr++]);
	}
	*line = r.line;
	return err;
}

int beams_read(struct beams *b, const char *path, u32 *line)
{
	char *text = calloc(1, FILE_BYTES + 1);
	FILE *f = fopen(path, "r");
	int err = -ENOMEM;

	*line = 0;
	if (!f) {
		err = -errno;
	} else if (text) {
		text[fread(text, 1, FILE_BYTES, f)] = '\0';
		err = ferror(f) ? -EIO : !feof(f) ? -EFBIG :
		      beams_parse(b, text, line);
	}
	if (f)
		fclose(f);
	free(text);
	return err;
}

void beams_free(struct beams *b)
{
	while (b->nr)
		free(b->search[--b->nr].parents);
}

/* ---- savings of sharing ---- */

/* Tokens of the answer that two beams have in common. */
struct kin {
	u32	common[BEAMS_WIDTH][BEAMS_WIDTH];
};

/* Beams have @tokens tokens each; each takes its place after its parent. */
static void kin_step(struct kin *kin, const u8 *parents, u32 width, u32 tokens)
{
	struct kin old = *kin;
	u32 i, k;

	for (i = 0; i < width; i++)
		for (k = 0; k < width; k++)
			kin->common[i][k] = parents[i] == parents[k] ? tokens :
					old.common[parents[i]][parents[k]];
}

double beams_ancestor(const struct beam_search *s, u32 steps)
{
	struct kin kin = { 0 };
	u32 t, i, least;
	double sum = 0;

	for (t = 1; t <= steps; t++) {
		kin_step(&kin, beams_step(s, t - 1), s->width, t);
		/* Beams have as much in common as each has with the first. */
		for (least = t, i = 1; i < s->width; i++)
			least = min(least, kin.common[0][i]);
		sum += t - least;
	}
	return steps ? sum / steps : 0;
}

/* Full blocks that @beam has in common with a beam before it. */
static u32 blocks_shared(const struct kin *kin, u32 beam, u32 prompt, u32 size)
{
	u32 i, most = 0;

	for (i = 0; i < beam; i++)
		most = max(most, prompt + kin->common[beam][i]);
	return most / size;
}

void beams_blocks(const struct beam_search *s, u32 prompt, u32 from, u32 to,
		  u32 size, struct beam_blocks *sum)
{
	struct kin kin = { 0 };
	u32 nr, beams, t, i;

	for (t = 0; t <= to; t++) {
		nr = DIV_ROUND_UP(prompt + t, size);
		beams = t ? s->width : 1;
		for (i = 0; i < beams && t >= from; i++) {
			sum->mapped += nr;
			sum->distinct += nr - blocks_shared(&kin, i, prompt,
							    size);
		}
		if (t)
			kin_step(&kin, beams_step(s, t - 1), s->width, t);
	}
}
