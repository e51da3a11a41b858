// SPDX-License-Identifier: Apache-2.0
/*
 * checks.c - the tests, used after `is`
 */
#include "runtime/template/internal.h"

/* A test of the value alone */
#define CHECK(name, cond)						\
static struct value name(struct render *r, const struct args *a)	\
{									\
	struct value v = a->self;					\
									\
	if (!args_take(r, a, "", 0, NULL))				\
		return VALUE(V_UNDEF);					\
	return VALUE_BOOL(cond);					\
}

/* A test that compares the value with another one */
#define CHECK_WITH(name, cond)						\
static struct value name(struct render *r, const struct args *a)	\
{									\
	struct value v = a->self, w[1];					\
									\
	if (!args_take(r, a, "other", 1, w))				\
		return VALUE(V_UNDEF);					\
	return VALUE_BOOL(cond);					\
}

static bool rest_is(struct render *r, struct value v, struct value by, s64 want)
{
	struct value rest = tv_binary(r, OP_MOD, v, by);

	return !r->mem.failed && tv_equal(r, rest, VALUE_INT(want));
}

/* Does the text have letters, and are all of them in this case? */
static bool is_case(struct render *r, struct value v, char how)
{
	struct value s = tv_str(r, v), same, other;

	if (r->mem.failed)
		return false;
	s.safe = 0;
	same = ts_map_case(r, s, how);
	other = ts_map_case(r, s, how == 'u' ? 'l' : 'u');
	return tv_equal(r, s, same) && !tv_equal(r, s, other);
}

static bool is_same(struct value v, struct value w)
{
	if (v.kind != w.kind)
		return false;
	switch (v.kind) {
	case V_NONE:
		return true;
	case V_BOOL:
		return v.b == w.b;
	case V_STR:
		return v.s == w.s && v.len == w.len;
	default:
		return v.i == w.i;
	}
}

static bool is_callable(struct value v)
{
	return v.kind == V_MACRO || v.kind == V_FUNC || v.kind == V_METHOD ||
	       v.kind == V_UNDEF;
}

static bool is_sequence(struct value v)
{
	return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE ||
	       v.kind == V_DICT || v.kind == V_RANGE || v.kind == V_UNDEF;
}

CHECK(is_defined, v.kind != V_UNDEF)
CHECK(is_undefined, v.kind == V_UNDEF)
CHECK(is_none, v.kind == V_NONE)
CHECK(is_string, v.kind == V_STR)
CHECK(is_mapping, v.kind == V_DICT)
CHECK(is_iterable, tv_is_iterable(v))
CHECK(is_seq, is_sequence(v))
CHECK(is_number, tv_is_num(v))
CHECK(is_integer, v.kind == V_INT)
CHECK(is_float, v.kind == V_FLOAT)
CHECK(is_boolean, v.kind == V_BOOL)
CHECK(is_true, v.kind == V_BOOL && v.b)
CHECK(is_false, v.kind == V_BOOL && !v.b)
CHECK(is_odd, rest_is(r, v, VALUE_INT(2), 1))
CHECK(is_even, rest_is(r, v, VALUE_INT(2), 0))
CHECK(is_lower, is_case(r, v, 'l'))
CHECK(is_upper, is_case(r, v, 'u'))
CHECK(is_escaped, v.kind == V_STR && v.safe)
CHECK(is_call, is_callable(v))
CHECK(is_filter, v.kind == V_STR && tv_filter_find(v.s, v.len))
CHECK(is_test, v.kind == V_STR && tv_test_find(v.s, v.len))
CHECK_WITH(is_eq, tv_equal(r, v, w[0]))
CHECK_WITH(is_ne, !tv_equal(r, v, w[0]))
CHECK_WITH(is_lt, tv_compare(r, OP_LT, v, w[0]))
CHECK_WITH(is_le, tv_compare(r, OP_LE, v, w[0]))
CHECK_WITH(is_gt, tv_compare(r, OP_GT, v, w[0]))
CHECK_WITH(is_ge, tv_compare(r, OP_GE, v, w[0]))
CHECK_WITH(is_in, tv_in(r, v, w[0]))
CHECK_WITH(is_divisible, rest_is(r, v, w[0], 0))
CHECK_WITH(is_sameas, is_same(v, w[0]))

/* Documentation/template.md has a table of these names. */
const struct func tv_tests[] = {
	{ "defined", is_defined }, { "undefined", is_undefined },
	{ "none", is_none }, { "string", is_string },
	{ "mapping", is_mapping }, { "iterable", is_iterable },
	{ "sequence", is_seq }, { "number", is_number },
	{ "integer", is_integer }, { "float", is_float },
	{ "boolean", is_boolean }, { "true", is_true }, { "false", is_false },
	{ "odd", is_odd }, { "even", is_even }, { "lower", is_lower },
	{ "upper", is_upper }, { "escaped", is_escaped },
	{ "callable", is_call }, { "filter", is_filter }, { "test", is_test },
	{ "eq", is_eq }, { "==", is_eq }, { "equalto", is_eq },
	{ "ne", is_ne }, { "!=", is_ne }, { "lt", is_lt }, { "<", is_lt },
	{ "lessthan", is_lt }, { "le", is_le }, { "<=", is_le },
	{ "gt", is_gt }, { ">", is_gt }, { "greaterthan", is_gt },
	{ "ge", is_ge }, { ">=", is_ge }, { "in", is_in },
	{ "divisibleby", is_divisible }, { "sameas", is_sameas },
	{ NULL, NULL },
};

const struct func *tv_test_find(const char *s, size_t n)
{
	return tv_func_find(tv_tests, s, n);
}
