/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of the template interpreter
 *
 *	lexer.c -> parser.c, expr.c	source to tokens to nodes (compile)
 *	run.c -> eval.c, call.c		nodes to text (render)
 *	value.h				the values between them
 *
 * Errors are sticky: the first one is kept in the arena, and every function
 * then returns at once with a harmless value (V_UNDEF, NULL).  So only loops
 * and users of pointers have to check mem->failed.
 */
#ifndef RUNTIME_TEMPLATE_INTERNAL_H
#define RUNTIME_TEMPLATE_INTERNAL_H

#include "runtime/template/template.h"
#include "runtime/template/value.h"

/**
 * struct arena - memory that is freed as a whole, and the first error
 * @chunk:  the newest chunk
 * @next:   first free byte of it
 * @end:    its end
 * @tail:   end of the last piece
 * @used:   bytes of all chunks
 * @max:    limit of @used
 */
struct arena {
	struct chunk		*chunk;
	char			*next;
	char			*end;
	char			*tail;
	size_t			used;
	size_t			max;
	bool			failed;
	unsigned int		line;
	unsigned int		col;
	struct tmpl_error	*err;
};

/* arena.c */
void *mem_get(struct arena *m, size_t n);
/* Grow a piece in place if it is the last one; else NULL. */
void *mem_extend(struct arena *m, const void *p, size_t old, size_t n);
void mem_free(struct arena *m);
/* Keep the first failure, with the place in m->line and col. */
void mem_fail(struct arena *m, enum tmpl_fault what, const char *fmt, ...)
	__printf(3, 4);

/* ---- tokens and nodes ---- */

enum token_kind {
	T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END,
	T_NAME, T_STR, T_INT, T_FLOAT, T_OP, T_EOF,
};

enum op {
	OP_NONE, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW,
	OP_TILDE, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_ASSIGN, OP_DOT,
	OP_COMMA, OP_COLON, OP_PIPE, OP_SEMI, OP_LPAREN, OP_RPAREN, OP_LBRACKET,
	OP_RBRACKET, OP_LBRACE, OP_RBRACE, OP_IN, OP_NOT_IN,
};

struct token {
	u8		kind;
	u8		op;
	u32		line;
	u32		col;
	u32		len;
	const char	*s;
	union {
		s64	i;
		double	f;
	};
};

/* Members a, b, c, d and e by kind; lists are linked by ->next. */
enum node_kind {
	/* expressions */
	N_CONST,	/* val */
	N_NAME,		/* sym */
	N_INPUT,	/* input text of a filter block */
	N_LIST,		/* a: items */
	N_TUPLE,	/* a: items */
	N_DICT,		/* a: key, value, key, value.. */
	N_ATTR,		/* a.s */
	N_ITEM,		/* a[b] */
	N_SLICE,	/* a:b:c, each may be NULL; only as member b of N_ITEM */
	N_CALL,		/* a(b..) */
	N_KEYWORD,	/* s=a, among the arguments */
	N_SPREAD,	/* *a, among the arguments */
	N_FILTER,	/* a|s(b..) with func, NULL if there is none */
	N_TEST,		/* a is s(b..) */
	N_NOT, N_NEG, N_POS,		/* a */
	N_AND, N_OR,			/* a, b */
	N_BINARY,	/* a op b */
	N_CONCAT,	/* a: the parts */
	N_COMPARE,	/* a, then b: a list of N_OPERAND */
	N_OPERAND,	/* op a */
	N_COND,		/* b if a else c, which may be NULL */
	/* statements */
	N_DATA,		/* s */
	N_PRINT,	/* a */
	N_IF,		/* a: condition, d: then, e: else */
	N_FOR,		/* a: target, b: items, c: condition, d: body, e: else */
	N_SET,		/* a: target, b */
	N_SET_BLOCK,	/* a: target, b: filters over N_INPUT, d: body */
	N_NSREF,	/* sym.s, as a target */
	N_MACRO,	/* sym, s, a: parameters, d: body */
	N_PARAM,	/* sym, s, a: default or NULL */
	N_CALL_BLOCK,	/* a: call, b: N_MACRO without a name */
	N_FILTER_BLOCK,	/* b: filters over N_INPUT, d: body */
	N_SCOPE,	/* d: body, in its own scope */
	N_BREAK, N_CONTINUE,
};

/* For N_MACRO: hidden variables that the body reads. */
#define MACRO_CALLER	BIT(0)
#define MACRO_VARARGS	BIT(1)
#define MACRO_KWARGS	BIT(2)

struct node {
	u8			kind;
	u8			op;
	u8			flags;
	u32			line;
	u32			col;
	u32			len;
	u32			sym;
	const char		*s;
	struct node		*next;
	struct node		*a;
	struct node		*b;
	struct node		*c;
	struct node		*d;
	struct node		*e;
	const struct func	*func;
	struct value		val;
};

struct symbol {
	const char	*s;
	u32		len;
};

/**
 * struct tmpl - a compiled template
 * @sym:        names of variables; nodes hold indices into it
 * @loop_sym:   index of `loop`, @nr_sym if no code reads it
 * @hidden_sym: indices of caller, varargs, kwargs
 */
struct tmpl {
	struct arena		mem;
	struct node		*body;
	struct symbol		*sym;
	u32			nr_sym;
	u32			cap_sym;
	u32			nr_nodes;
	u32			loop_sym;
	u32			hidden_sym[3];
};

#define TMPL_SYMBOLS_MAX	4096u

/* lexer.c: all tokens, a T_EOF last; NULL after a failure */
struct token *lex_template(struct arena *m, const char *src, size_t n);
/* lexeme.c */
bool lex_string(struct arena *m, const char *p, size_t n, struct token *t);
size_t lex_number(struct arena *m, const char *p, const char *end,
		  bool after_dot, struct token *t);

/**
 * struct parser - state of the parser
 * @nest:  open blocks and brackets
 * @loops: enclosing loops, within this macro
 * @soft:  inside of a condition: an unknown filter fails only when reached
 * @unknown: the first unknown name outside of conditions, and its kind
 * @hidden: flags of the enclosing macro
 * @spare: node that is filled in after a failure
 */
struct parser {
	struct tmpl		*t;
	struct arena		*m;
	const struct token	*at;
	u32			nest;
	u32			loops;
	u32			soft;
	const struct token	*unknown;
	const char		*unknown_what;
	u8			hidden;
	struct node		spare;
};

/* nodes.c: helpers of both halves of the parser */
struct node *parse_node(struct parser *p, enum node_kind kind);
u32 parse_symbol(struct parser *p, const struct token *t);
bool parse_token_is(const struct token *t, const char *s);
bool parse_is(const struct parser *p, enum op op);
bool parse_is_name(const struct parser *p, const char *s);
bool parse_skip(struct parser *p, enum op op);
bool parse_skip_name(struct parser *p, const char *s);
void parse_want(struct parser *p, enum op op);
const struct token *parse_want_name(struct parser *p);
void parse_fail(struct parser *p, const char *want);
void parse_refuse(struct parser *p, const struct token *t, const char *what);
bool parse_enter(struct parser *p);

/* expr.c, unary.c */
struct node *parse_expr(struct parser *p, bool with_cond);
struct node *parse_tuple(struct parser *p, bool with_cond);
struct node *parse_unary(struct parser *p, bool with_filter);
/* Parse all filters and tests after @n; parse one filter after its pipe */
struct node *parse_filters(struct parser *p, struct node *n);
struct node *parse_filter(struct parser *p, struct node *of);
struct node *parse_call_args(struct parser *p);
/* Parse names, or a tuple of them; with @ns also ns.attr */
struct node *parse_target_name(struct parser *p, bool ns);
struct node *parse_target(struct parser *p, bool ns);

/* parser.c */
struct node *parse_template(struct parser *p);

/* ---- rendering ---- */

struct var {
	u32		sym;
	struct value	v;
};

/* One scope: the template, an iteration of a loop, a macro, a block. */
struct frame {
	struct frame	*up;
	struct var	*var;
	u32		n;
	u32		cap;
};

struct macro {
	const struct node	*node;
	struct frame		*scope;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

/**
 * struct render - state of one rendering
 * @out:   the text so far; text of a macro or block is cut off its end
 * @base:  [nr_sym] the caller's variables and the functions
 * @input: value of N_INPUT
 */
struct render {
	struct arena		mem;
	const struct tmpl	*t;
	struct frame		*frame;
	struct value		*base;
	struct value		input;
	char			*out;
	size_t			out_len;
	size_t			out_cap;
	size_t			out_max;
	u64			steps;
	u32			depth;
	u32			max_depth;
	u32			loop_depth;
	enum flow		flow;
	time_t			now;
};

/* run.c */
void run_body(struct render *r, const struct node *n);
/* Run a body and return its text as a value */
struct value run_capture(struct render *r, const struct node *body);
void run_step(struct render *r, u64 n);
bool run_enter(struct render *r);
void run_leave(struct render *r);
void run_fail(struct render *r, const char *fmt, ...) __printf(2, 3);
void run_limit(struct render *r, const char *what);
/* Count @n bytes as steps. */
void run_bytes(struct render *r, size_t n);

/* scope.c */
struct frame *scope_push(struct render *r, struct frame *up);
void scope_set(struct render *r, struct frame *f, u32 sym, struct value v);
struct value scope_get(struct render *r, u32 sym);
void scope_assign(struct render *r, const struct node *target, struct value v);

/* eval.c, call.c */
struct value eval(struct render *r, const struct node *n);
struct value call_value(struct render *r, struct value fn, struct args *a);
struct value call_node(struct render *r, const struct node *n,
		       struct value caller);
bool call_args(struct render *r, const struct node *list, struct args *a,
	       struct value caller);

/* strings.c: text; positions are counted in characters, as in Python */
struct sbuf {
	struct render	*r;
	char		*p;
	size_t		len;
	size_t		cap;
};
void sb_add(struct sbuf *b, const char *p, size_t n);
void sb_puts(struct sbuf *b, const char *s);
void sb_char(struct sbuf *b, u32 c);
struct value sb_value(struct sbuf *b);
u32 ts_next(const char **p, const char *end);
bool ts_is_space(u32 c);
size_t ts_chars(const char *s, size_t n);
const char *ts_at(const char *s, size_t n, size_t chars);
const char *ts_find(const char *s, size_t n, const char *what, size_t m);
struct value ts_concat(struct render *r, struct value a, struct value b);
struct value ts_sub(struct value s, const char *from, const char *to);
struct value ts_copy(struct render *r, const char *s, size_t n);

/* letters.c: Unicode properties of characters */
u32 ts_upper(u32 c);
u32 ts_lower(u32 c);
bool ts_is_printable(u32 c);
struct value ts_map_case(struct render *r, struct value s, char how);

/* strip.c, split.c: methods of str, also used by filters */
struct value ts_strip(struct render *r, struct value s, struct value chars,
		      int ends);
struct value ts_replace(struct render *r, struct value s, struct value from,
			struct value to, s64 count);
struct value ts_split(struct render *r, const struct args *a, bool from_end);
struct value ts_splitlines(struct render *r, const struct args *a);
struct value ts_partition(struct render *r, const struct args *a, bool last);

#endif /* RUNTIME_TEMPLATE_INTERNAL_H */
