// SPDX-License-Identifier: Apache-2.0
/*
 * run.c - rendering: statements, and the limits
 *
 * The tree is interpreted directly.  Text goes to one buffer; text of a macro
 * or a block is cut off its end again and becomes a value.  Every node counts
 * as a step, and so do about 32 bytes that an operation reads or writes.
 * Steps, memory, depth and text have limits, so every rendering ends soon.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/template/internal.h"

/* ---- limits and failures ---- */

void run_fail(struct render *r, const char *fmt, ...)
{
	char text[TMPL_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mem_fail(&r->mem, TMPL_FAILED, "%s", text);
}

void run_limit(struct render *r, const char *what)
{
	mem_fail(&r->mem, TMPL_LIMIT, "%s", what);
}

void run_step(struct render *r, u64 n)
{
	if (r->steps < n) {
		r->steps = 0;
		run_limit(r, "the template runs for too long");
		return;
	}
	r->steps -= n;
}

void run_bytes(struct render *r, size_t n)
{
	if (r)
		run_step(r, n / 32);
}

bool run_enter(struct render *r)
{
	if (r->depth == r->max_depth)
		run_limit(r, "the template or its values are nested too deeply");
	if (r->mem.failed)
		return false;
	r->depth++;
	return true;
}

void run_leave(struct render *r)
{
	r->depth--;
}

/* ---- text ---- */

static bool out_reserve(struct render *r, size_t n)
{
	size_t cap = max(r->out_cap, (size_t)4096);
	char *p;

	if (n > r->out_max - r->out_len) {
		run_limit(r, "the template makes too much text");
		return false;
	}
	while (cap < r->out_len + n)
		cap *= 2;
	if (cap == r->out_cap)
		return true;
	p = realloc(r->out, cap + 1);
	if (!p) {
		mem_fail(&r->mem, TMPL_NOMEM, "out of memory");
		return false;
	}
	r->out = p;
	r->out_cap = cap;
	return true;
}

static void out_add(struct render *r, const char *s, size_t n)
{
	run_bytes(r, n);
	if (r->mem.failed || !n || !out_reserve(r, n))
		return;
	memcpy(r->out + r->out_len, s, n);
	r->out_len += n;
}

struct value run_capture(struct render *r, const struct node *body)
{
	size_t begin = r->out_len;
	struct value v;

	run_body(r, body);
	v = r->out ? ts_copy(r, r->out + begin, r->out_len - begin) :
	    VALUE_STR("", 0);
	r->out_len = begin;
	return v;
}

/* ---- statements ---- */

static void run_print(struct render *r, const struct node *n)
{
	struct value v = tv_str(r, eval(r, n->a));

	if (!r->mem.failed)
		out_add(r, v.s, v.len);
}

static void run_if(struct render *r, const struct node *n)
{
	for (;;) {
		if (tv_truth(r, eval(r, n->a))) {
			run_body(r, n->d);
			return;
		}
		if (r->mem.failed || !n->e)
			return;
		if (n->e->kind != N_IF || n->e->next)
			break;
		n = n->e;
	}
	run_body(r, n->e);
}

/* The items that pass the loop's condition */
static const struct value *loop_filter(struct render *r, const struct node *n,
				       const struct value *v, u32 *nr)
{
	struct frame *outer = r->frame;
	struct value keep = tv_seq(r, V_LIST, *nr);
	u32 i;

	r->frame = scope_push(r, outer);
	for (i = 0; i < *nr && !r->mem.failed; i++) {
		r->frame->n = 0;
		scope_assign(r, n->a, v[i]);
		if (tv_truth(r, eval(r, n->c)))
			tv_push(r, keep, v[i]);
	}
	r->frame = outer;
	if (r->mem.failed)
		return NULL;
	*nr = keep.seq->n;
	return keep.seq->v;
}

static void run_turns(struct render *r, const struct node *n,
		      struct loop *loop)
{
	struct value v = VALUE(V_LOOP, .loop = loop);

	for (loop->at = 0; loop->at < loop->n; loop->at++) {
		run_step(r, 1);
		r->frame->n = 0;
		scope_assign(r, n->a, loop->items[loop->at]);
		if (r->t->loop_sym < r->t->nr_sym)
			scope_set(r, r->frame, r->t->loop_sym, v);
		run_body(r, n->d);
		if (r->mem.failed || r->flow == FLOW_BREAK)
			break;
		r->flow = FLOW_ON;
	}
	r->flow = FLOW_ON;
}

static void run_for(struct render *r, const struct node *n)
{
	struct loop *loop = mem_get(&r->mem, sizeof(*loop));
	struct frame *outer = r->frame;
	const struct value *v;
	u32 nr = 0;

	v = tv_items(r, eval(r, n->b), &nr);
	if (n->c && !r->mem.failed)
		v = loop_filter(r, n, v, &nr);
	if (!r->mem.failed)
		r->frame = scope_push(r, outer);
	if (r->mem.failed)
		return;
	*loop = (struct loop){ .n = nr, .items = v, .depth = ++r->loop_depth };
	if (nr)
		run_turns(r, n, loop);
	else
		run_body(r, n->e);
	r->loop_depth--;
	r->frame = outer;
}

static void run_set(struct render *r, const struct node *n)
{
	scope_assign(r, n->a, eval(r, n->b));
}

/* Text of @body in its own scope, passed through the filters @n */
static struct value run_filtered(struct render *r, const struct node *n,
				 const struct node *body)
{
	struct frame *outer = r->frame;
	struct value input = r->input, v;

	r->frame = scope_push(r, outer);
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	v = run_capture(r, body);
	r->frame = outer;
	if (n) {
		r->input = v;
		v = eval(r, n);
		r->input = input;
	}
	return v;
}

static void run_macro(struct render *r, const struct node *n)
{
	struct macro *m = mem_get(&r->mem, sizeof(*m));

	if (!m)
		return;
	m->node = n;
	m->scope = r->frame;
	scope_set(r, r->frame, n->sym, VALUE(V_MACRO, .macro = m));
}

static void run_call_block(struct render *r, const struct node *n)
{
	struct macro *m = mem_get(&r->mem, sizeof(*m));
	struct value v;

	if (!m)
		return;
	m->node = n->b;
	m->scope = r->frame;
	v = tv_str(r, call_node(r, n->a, VALUE(V_MACRO, .macro = m)));
	if (!r->mem.failed)
		out_add(r, v.s, v.len);
}

static void run_scope(struct render *r, const struct node *n)
{
	struct frame *outer = r->frame;

	r->frame = scope_push(r, outer);
	if (!r->mem.failed)
		run_body(r, n->d);
	r->frame = outer;
}

static void run_node(struct render *r, const struct node *n)
{
	struct value v;

	switch (n->kind) {
	case N_DATA:
		out_add(r, n->s, n->len);
		break;
	case N_PRINT:
		run_print(r, n);
		break;
	case N_IF:
		run_if(r, n);
		break;
	case N_FOR:
		run_for(r, n);
		break;
	case N_SET:
		run_set(r, n);
		break;
	case N_SET_BLOCK:
		scope_assign(r, n->a, run_filtered(r, n->b, n->d));
		break;
	case N_MACRO:
		run_macro(r, n);
		break;
	case N_CALL_BLOCK:
		run_call_block(r, n);
		break;
	case N_FILTER_BLOCK:
		v = tv_str(r, run_filtered(r, n->b, n->d));
		if (!r->mem.failed)
			out_add(r, v.s, v.len);
		break;
	case N_SCOPE:
		run_scope(r, n);
		break;
	case N_BREAK:
		r->flow = FLOW_BREAK;
		break;
	default:
		r->flow = FLOW_CONTINUE;
		break;
	}
}

void run_body(struct render *r, const struct node *n)
{
	if (!run_enter(r))
		return;
	for (; n && !r->mem.failed && r->flow == FLOW_ON; n = n->next) {
		run_step(r, 1);
		r->mem.line = n->line;
		r->mem.col = n->col;
		run_node(r, n);
	}
	run_leave(r);
}

/* ---- a rendering ---- */

/* Set the value of each name that the template does not set itself */
static void base_fill(struct render *r, const json_t *vars)
{
	const struct symbol *s;
	const struct func *f;
	const json_t *j;
	u32 i;

	r->base = mem_get(&r->mem, r->t->nr_sym * sizeof(*r->base));
	for (i = 0; i < r->t->nr_sym && !r->mem.failed; i++) {
		s = &r->t->sym[i];
		j = json_object_getn(vars, s->s, s->len);
		f = tv_global_find(s->s, s->len);
		r->base[i] = j ? tv_from_json(r, j) :
			     f ? VALUE(V_FUNC, .func = f) :
				 tv_undef(s->s, s->len);
	}
}

static void run_init(struct render *r, const struct tmpl *t,
		     const struct tmpl_options *o, struct tmpl_error *err)
{
	const struct tmpl_limits *l = &o->limits;

	memset(r, 0, sizeof(*r));
	r->t = t;
	r->mem.err = err;
	r->mem.max = l->memory ? l->memory : TMPL_MEMORY_DEFAULT;
	r->steps = l->steps ? l->steps : TMPL_STEPS_DEFAULT;
	r->out_max = l->output ? l->output : TMPL_OUTPUT_DEFAULT;
	r->max_depth = l->depth ? l->depth : TMPL_DEPTH_DEFAULT;
	r->now = o->now ? o->now : time(NULL);
}

char *tmpl_render(const struct tmpl *t, const json_t *vars,
		  const struct tmpl_options *o, size_t *len,
		  struct tmpl_error *err)
{
	static const struct tmpl_options defaults;
	struct render r;

	memset(err, 0, sizeof(*err));
	run_init(&r, t, o ? o : &defaults, err);
	base_fill(&r, vars);
	r.frame = scope_push(&r, NULL);
	if (!r.mem.failed)
		run_body(&r, t->body);
	if (!r.mem.failed && out_reserve(&r, 1))
		r.out[r.out_len] = 0;
	mem_free(&r.mem);
	if (r.mem.failed) {
		free(r.out);
		return NULL;
	}
	*len = r.out_len;
	return r.out;
}
