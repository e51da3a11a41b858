// SPDX-License-Identifier: Apache-2.0
/*
 * normalize.c - the normalizer: from the input to the text that is split
 *
 * Steps follow one another; each writes the whole text again, in turn into one
 * of two buffers.  A step that changes nothing writes nothing and passes its
 * input on, so most texts are never copied.
 *
 * The decoder's Replaces are the same steps, applied to each token at load.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

/* State of one step: its input, and its output. */
struct norm_job {
	struct find_ctx *find;
	struct norm_scratch *scratch;
	const char *text;
	size_t len;
	struct tok_text *out;
	bool wrote;
	size_t max;
};

static int job_put(struct norm_job *j, const char *bytes, size_t len)
{
	j->wrote = true;
	if (j->out->len + len > j->max)
		return -EFBIG;
	return tok_put(j->out, bytes, len);
}

static int step_replace(const struct norm_step *s, struct norm_job *j)
{
	size_t done = 0, from, to;
	int err = 0;

	while (!err && done < j->len) {
		from = done;
		err = finder_next(&s->find, j->find, j->text, j->len, &from,
				  &to);
		if (!err && from == j->len && !done)
			return 0;
		if (!err)
			err = job_put(j, j->text + done, from - done);
		if (!err && from < to)
			err = job_put(j, s->with, s->with_len);
		done = to;
	}
	return err;
}

static int step_prepend(const struct norm_step *s, struct norm_job *j)
{
	int err;

	if (!j->len)
		return 0;
	err = job_put(j, s->with, s->with_len);
	return err ? err : job_put(j, j->text, j->len);
}

static size_t encode_point(u32 cp, char out[4])
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

/* Lower case, or removal of marks: character by character. */
static int step_each(const struct norm_step *s, struct norm_job *j)
{
	const u8 *p = (const u8 *)j->text;
	size_t at = 0, n;
	u32 cp, low[2], nr, i;
	char buf[4];
	int err = 0;

	while (!err && at < j->len) {
		utf8_step(p + at, j->len - at, &n);
		cp = utf8_decode(p + at, n);
		if (s->kind == NORM_STRIP_ACCENTS) {
			if (cp < 0x300 || !form_is_mark(cp))
				err = job_put(j, j->text + at, n);
		} else {
			nr = form_lowercase(cp, low);
			for (i = 0; i < nr && !err; i++)
				err = job_put(j, buf, encode_point(low[i],
								   buf));
		}
		at += n;
	}
	/* The result may be empty. */
	j->wrote = true;
	return err;
}

static int step_strip(const struct norm_step *s, struct norm_job *j)
{
	if (s->left)
		while (j->len) {
			size_t n = utf8_space_len((const u8 *)j->text, j->len);

			if (!n)
				break;
			j->text += n;
			j->len -= n;
		}
	if (s->right)
		j->len = utf8_space_before((const u8 *)j->text, 0, j->len);
	return 0;
}

static int step_form(const struct norm_step *s, struct norm_job *j)
{
	const u8 *p = (const u8 *)j->text;
	size_t i = 0;
	int err;

	while (i < j->len && p[i] < 0x80)
		i++;
	if (i == j->len)
		return 0;
	err = form_apply(s->form, j->scratch, j->text, j->len, j->out);
	j->wrote = true;
	return !err && j->out->len > j->max ? -EFBIG : err;
}

static int step_do(const struct norm_step *s, struct norm_job *j)
{
	switch (s->kind) {
	case NORM_FORM:
		return step_form(s, j);
	case NORM_LOWERCASE:
	case NORM_STRIP_ACCENTS:
		return step_each(s, j);
	case NORM_STRIP:
		return step_strip(s, j);
	case NORM_PREPEND:
		return step_prepend(s, j);
	case NORM_REPLACE:
		return step_replace(s, j);
	}
	return -EINVAL;
}

int norm_apply(const struct norm_step *steps, u32 nr, struct find_ctx *c,
	      struct norm_scratch *s, const char **text, size_t *len)
{
	struct norm_job j = {
		.find = c, .scratch = s, .text = *text, .len = *len,
		.max = TOKENIZER_GROWN(*len),
	};
	u32 i, turn = 0;
	int err;

	for (i = 0; i < nr; i++) {
		j.out = &s->buf[turn];
		j.out->len = 0;
		j.wrote = false;
		err = step_do(&steps[i], &j);
		if (err)
			return err;
		if (j.wrote) {
			j.text = j.out->len ? j.out->p : "";
			j.len = j.out->len;
			turn ^= 1;
		}
	}
	*text = j.text;
	*len = j.len;
	return 0;
}

void norm_scratch_free(struct norm_scratch *s)
{
	tok_text_free(&s->buf[0]);
	tok_text_free(&s->buf[1]);
	free(s->points);
}

void norm_step_free(struct norm_step *s)
{
	finder_free(&s->find);
	free(s->with);
}
