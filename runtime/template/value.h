/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - the values that a template computes with
 *
 * Python's values, as far as templates use them.  A value has 16 bytes and is
 * copied freely.  The memory that it points to is in the rendering's arena or
 * in the caller's variables, and is freed with these.  Only namespaces, and the
 * position of a generator, change after creation.
 */
#ifndef RUNTIME_TEMPLATE_VALUE_H
#define RUNTIME_TEMPLATE_VALUE_H

#include <kvmm/types.h>

struct args;
struct macro;
struct render;
struct value;

/**
 * enum value_kind - the type of a value
 * @V_MISSING:	  no value: an argument that was not given
 * @V_UNDEF:	  Jinja's Undefined; the text is the name that was not found
 * @V_VIEW:	  dict.keys(), .values(), .items(): a list without subscripts
 * @V_GEN:		a sequence that can be iterated once: the result of
 *			map() and others
 * @V_NAMESPACE:  a dict that template code may write to
 * @V_LOOP:	  the `loop` of a for
 * @V_MACRO:	  a macro, or the block of a call
 * @V_FUNC:	  a function of this library
 * @V_METHOD:	  a method together with its object
 */
enum value_kind {
	V_MISSING,
	V_UNDEF,
	V_NONE,
	V_BOOL,
	V_INT,
	V_FLOAT,
	V_STR,
	V_LIST,
	V_TUPLE,
	V_DICT,
	V_VIEW,
	V_GEN,
	V_RANGE,
	V_NAMESPACE,
	V_LOOP,
	V_MACRO,
	V_FUNC,
	V_METHOD,
};


/**
 * struct value - one value
 * @kind: enum value_kind, which says which other members are set
 * @safe: V_STR: text that escapes the text added to it, from the filter `safe`
 * @len:  V_STR, V_UNDEF: bytes at @s
 */
struct value {
	u8	kind;
	u8	safe;
	u32	len;
	union {
		bool			b;
		s64			i;
		double			f;
		const char		*s;
		struct seq		*seq;
		struct dict		*dict;
		const struct range	*range;
		struct loop		*loop;
		const struct macro	*macro;
		const struct func	*func;
		const struct bound	*bound;
	};
};

/**
 * struct seq - the values of a list, tuple, view or generator
 * @v:	  [@cap], @n in use
 * @next:	of a generator, the first value not yet taken
 * @name:	of a view, its name in Python
 */
struct seq {
	u32		n;
	u32		cap;
	u32		next;
	const char	*name;
	struct value	*v;
};

/* A dict keeps the order of insertion; @slot is an open hash of places in @e. */
struct dict_entry {
	struct value	key;
	struct value	val;
	u32		hash;
};

struct dict {
	u32			n;
	u32			cap;
	u32			nr_slots;
	u32			*slot;
	struct dict_entry	*e;
};

struct range {
	s64	start;
	s64	step;
	u32	n;
};

struct loop {
	u32			at;
	u32			n;
	u32			depth;
	const struct value	*items;
};

struct func {
	const char	*name;
	struct value	(*fn)(struct render *r, const struct args *a);
};

struct bound {
	struct value	self;
	struct func	func;
};

struct kwarg {
	const char	*name;
	u32		len;
	struct value	v;
};

/**
 * struct args - the operands of a filter, test, function or method
 * @self: the value it is applied to, V_MISSING for a function
 */
struct args {
	struct value		self;
	const struct value	*v;
	u32			n;
	const struct kwarg	*kw;
	u32			nr_kw;
};

#define VALUE(k, ...)	((struct value){ .kind = (k), __VA_ARGS__ })
#define VALUE_NONE	VALUE(V_NONE)
#define VALUE_STR(p, n)	VALUE(V_STR, .s = (p), .len = (u32)(n))
#define VALUE_INT(x)	VALUE(V_INT, .i = (x))
#define VALUE_BOOL(x)	VALUE(V_BOOL, .b = (x))
#define VALUE_FLOAT(x)	VALUE(V_FLOAT, .f = (x))

/* value.c: creation and Python's properties */
struct value tv_undef(const char *name, size_t len);
struct value tv_text(const char *s);
struct value tv_seq(struct render *r, enum value_kind kind, u32 cap);
void tv_push(struct render *r, struct value seq, struct value item);
const char *tv_type(struct value v);
bool tv_is_text(struct value v, const char *s);
bool tv_is_num(struct value v);
bool tv_as_int(struct value v, s64 *out);
double tv_as_float(struct value v);
bool tv_truth(struct render *r, struct value v);

/* compare.c */
bool tv_equal(struct render *r, struct value a, struct value b);
/* OP_LT, OP_LE, OP_GT or OP_GE; fails for types without an order in Python */
bool tv_compare(struct render *r, u8 op, struct value a, struct value b);
bool tv_in(struct render *r, struct value item, struct value box);
/* Stable, in place, by the keys */
void tv_sort(struct render *r, struct value *v, struct value *keys, u32 n,
	     bool reverse);

/* dict.c */
struct value tv_dict(struct render *r, enum value_kind kind);
void tv_dict_set(struct render *r, struct dict *d, struct value key,
		 struct value val);
struct value *tv_dict_find(struct render *r, const struct dict *d,
			   struct value key);
struct value *tv_dict_text(struct render *r, const struct dict *d,
			   const char *s, size_t n);

/* items.c: going through values */
/* The items as an array of @n; fails for a value without items. */
const struct value *tv_items(struct render *r, struct value v, u32 *n);
bool tv_is_iterable(struct value v);
/* len(); false for a type without it */
bool tv_len(struct render *r, struct value v, s64 *n);
struct value tv_getattr(struct render *r, struct value v, const char *s,
			size_t n);
struct value tv_getitem(struct render *r, struct value v, struct value key);
/* Bounds are V_NONE or numbers. */
struct value tv_slice(struct render *r, struct value v,
		      const struct value bound[3]);
/* "a.b.0", for filters with an attribute */
struct value tv_path(struct render *r, struct value v, struct value path);

/* show.c: values as text */
struct value tv_str(struct render *r, struct value v);
struct value tv_repr(struct render *r, struct value v);
size_t tv_float_text(double f, char out[32]);

/* dump.c: JSON */
struct value tv_from_json(struct render *r, const struct json_t *j);
struct value tv_to_json(struct render *r, const struct args *a);

/* ops.c: operators */
struct value tv_binary(struct render *r, u8 op, struct value a, struct value b);
struct value tv_negate(struct render *r, struct value v, bool minus);
/* percent.c, braces.c: Python's two kinds of formatting */
struct value tv_percent(struct render *r, struct value fmt, struct value arg);
struct value tv_braces(struct render *r, const struct args *a);
/* escape.c: &, <, > and quotes as in HTML */
struct value tv_escape(struct render *r, struct value v);

/* members.c: dict_items, dict_keys or dict_values */
struct value tv_dict_view(struct render *r, struct value d, const char *name);

/*
 * The tables end with a NULL name.  A lookup returns NULL for an unknown name.
 */
extern const struct func tv_filters[], tv_tests[], tv_globals[];
extern const struct func tv_text_methods[], tv_row_methods[], tv_dict_methods[];
const struct func *tv_func_find(const struct func *f, const char *s, size_t n);
const struct func *tv_filter_find(const char *s, size_t n);
const struct func *tv_test_find(const char *s, size_t n);
const struct func *tv_global_find(const char *s, size_t n);
const struct func *tv_method_find(struct value self, const char *s, size_t n);

/* args.c */
/**
 * args_take() - sort operands by name
 * @spec: the names in order, separated by blanks
 * @need: how many are required
 * @out:  gets the values, V_MISSING for a missing one
 *
 * Return: false after a failure.
 */
bool args_take(struct render *r, const struct args *a, const char *spec,
	       u32 need, struct value *out);
/* Get a number or a text; fails for another type. */
s64 arg_int(struct render *r, struct value v, s64 def);
bool arg_text(struct render *r, struct value v, const char *what);

#endif /* RUNTIME_TEMPLATE_VALUE_H */
