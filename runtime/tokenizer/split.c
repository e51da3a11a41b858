// SPDX-License-Identifier: Apache-2.0
/*
 * split.c - the pre_tokenizer: from a text to pieces
 *
 * Stages follow one another.  Each gets the pieces of the stage before, one by
 * one, and only the bytes of the piece: lookaheads end where the piece ends.
 * So the stages are a recursion of fixed depth, and a piece passes all of them
 * before the next one is cut.
 *
 * A stage may write its piece anew (a prefix, spaces to a mark) into its own
 * buffer, which is valid until the stage's next piece.
 *
 * @first means that a piece begins where the whole text does: a Metaspace with
 * the scheme "first" needs that.
 */
#include "runtime/tokenizer/internal.h"

static int stage_do(struct splitter *s, u32 nr, const char *text, size_t len,
		    bool first);

/* A piece that may still be joined with the next one. */
struct pending {
	size_t from;
	size_t to;
	bool is_match;
	bool any;
};

static int pending_put(struct splitter *s, u32 nr, const char *text,
		       struct pending *p, bool first)
{
	if (!p->any || p->from == p->to)
		return 0;
	p->any = false;
	return stage_do(s, nr + 1, text + p->from, p->to - p->from,
			first && !p->from);
}

/* Does a segment join the pending one? */
static bool segment_joins(enum split_behavior b, const struct pending *p,
			  bool is_match)
{
	if (!p->any)
		return false;
	if (b == SPLIT_WITH_PREVIOUS)
		return is_match && !p->is_match;
	if (b == SPLIT_WITH_NEXT)
		return p->is_match && !is_match;
	return b == SPLIT_CONTIGUOUS && is_match == p->is_match;
}

/* Put one match, or the text between two matches: from @from to @to. */
static int segment_put(struct splitter *s, u32 nr, const char *text,
		       struct pending *p, struct pending seg, bool first)
{
	const struct stage *st = &s->tok->stages[nr];
	int err;

	if (seg.from == seg.to)
		return 0;
	seg.is_match ^= st->invert;
	if (segment_joins(st->behavior, p, seg.is_match)) {
		p->to = seg.to;
		p->is_match = seg.is_match;
		return 0;
	}
	err = pending_put(s, nr, text, p, first);
	if (err || (st->behavior == SPLIT_REMOVED && seg.is_match))
		return err;
	*p = seg;
	return 0;
}

static int stage_cut(struct splitter *s, u32 nr, const char *text, size_t len,
		     bool first)
{
	const struct stage *st = &s->tok->stages[nr];
	size_t done = 0, from, to;
	struct pending p = { 0 };
	int err = 0;

	while (!err && done < len) {
		from = done;
		err = finder_next(&st->find, &s->find, text, len, &from, &to);
		if (!err)
			err = segment_put(s, nr, text, &p, (struct pending){
					  done, from, false, true }, first);
		if (!err)
			err = segment_put(s, nr, text, &p, (struct pending){
					  from, to, true, true }, first);
		done = to;
	}
	return err ? err : pending_put(s, nr, text, &p, first);
}

/* Isolated and not inverted, as most stages are: pieces are never joined. */
static int stage_isolate(struct splitter *s, u32 nr, const char *text,
			 size_t len, bool first)
{
	const struct stage *st = &s->tok->stages[nr];
	size_t done = 0, from, to;
	int err;

	while (done < len) {
		from = done;
		err = finder_next(&st->find, &s->find, text, len, &from, &to);
		if (!err && from > done)
			err = stage_do(s, nr + 1, text + done, from - done,
				       first && !done);
		if (!err && to > from)
			err = stage_do(s, nr + 1, text + from, to - from,
				       first && !from);
		if (err)
			return err;
		done = to;
	}
	return 0;
}

/* Put the mark before a text that does not begin with it. */
static int stage_prefix(struct splitter *s, u32 nr, const char *text,
			size_t len, bool first)
{
	const struct stage *st = &s->tok->stages[nr];
	struct tok_text *t = &s->buf[nr];

	if (len >= st->mark_len && !memcmp(text, st->mark, st->mark_len))
		return stage_do(s, nr + 1, text, len, first);
	t->len = 0;
	if (tok_put(t, st->mark, st->mark_len) || tok_put(t, text, len))
		return -ENOMEM;
	return stage_do(s, nr + 1, t->p, t->len, first);
}

static bool metaspace_prepends(const struct stage *st, const char *text,
			       size_t len, bool first)
{
	if (st->scheme == PREPEND_NEVER ||
	    (st->scheme == PREPEND_FIRST && !first) || text[0] == ' ')
		return false;
	return len < st->mark_len || memcmp(text, st->mark, st->mark_len);
}

/* Cut before each mark. */
static int metaspace_cut(struct splitter *s, u32 nr, bool first)
{
	const struct stage *st = &s->tok->stages[nr];
	const struct tok_text *t = &s->buf[nr];
	size_t done = 0, to;
	const char *at;
	int err = 0;

	while (!err && done < t->len) {
		to = done + 1;
		at = memmem(t->p + to, t->len - to, st->mark, st->mark_len);
		to = at ? (size_t)(at - t->p) : t->len;
		err = stage_do(s, nr + 1, t->p + done, to - done,
			       first && !done);
		done = to;
	}
	return err;
}

static int stage_metaspace(struct splitter *s, u32 nr, const char *text,
			   size_t len, bool first)
{
	const struct stage *st = &s->tok->stages[nr];
	struct tok_text *t = &s->buf[nr];
	size_t done = 0, n;
	const char *at;
	int err = 0;

	t->len = 0;
	if (metaspace_prepends(st, text, len, first))
		err = tok_put(t, st->mark, st->mark_len);
	while (!err && done < len) {
		at = memchr(text + done, ' ', len - done);
		n = at ? (size_t)(at - text) - done : len - done;
		err = tok_put(t, text + done, n);
		if (!err && at)
			err = tok_put(t, st->mark, st->mark_len);
		done += n + !!at;
	}
	if (err)
		return err;
	return st->cuts ? metaspace_cut(s, nr, first) :
			  stage_do(s, nr + 1, t->p, t->len, first);
}

static int stage_do(struct splitter *s, u32 nr, const char *text, size_t len,
		    bool first)
{
	const struct stage *st = &s->tok->stages[nr];

	if (nr == s->tok->nr_stages)
		return s->piece(s, text, len);
	if (st->kind == STAGE_PREFIX)
		return stage_prefix(s, nr, text, len, first);
	if (st->kind == STAGE_METASPACE)
		return stage_metaspace(s, nr, text, len, first);
	if (st->behavior == SPLIT_ISOLATED)
		return stage_isolate(s, nr, text, len, first);
	return stage_cut(s, nr, text, len, first);
}

int split_text(struct splitter *s, const char *text, size_t len, bool first)
{
	return stage_do(s, 0, text, len, first);
}
