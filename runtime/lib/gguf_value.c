// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_value.c - values of the metadata by kind
 *
 * Writers disagree about the kind of a number: a count may be u32, s32 or u64, and a
 * factor f32 or f64.  So a caller asks for a whole number or for any number.
 */
#include "runtime/lib/gguf_part.h"

u32 gguf_kind_size(u32 kind)
{
	static const u8 sizes[NR_GGUF_KINDS] = {
		[GGUF_U8] = 1, [GGUF_S8] = 1, [GGUF_U16] = 2, [GGUF_S16] = 2,
		[GGUF_U32] = 4, [GGUF_S32] = 4, [GGUF_F32] = 4,
		[GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_S64] = 8,
		[GGUF_F64] = 8,
	};

	return kind < NR_GGUF_KINDS ? sizes[kind] : 0;
}

/* A signed number; false for other kinds. */
static bool scalar_signed(u32 kind, const u8 *p, s64 *out)
{
	switch (kind) {
	case GGUF_S8:
		*out = (s8)*p;
		return true;
	case GGUF_S16:
		*out = (s16)gguf_le16(p);
		return true;
	case GGUF_S32:
		*out = (s32)gguf_le32(p);
		return true;
	case GGUF_S64:
		*out = (s64)gguf_le64(p);
		return true;
	default:
		return false;
	}
}

static bool scalar_unsigned(u32 kind, const u8 *p, u64 *out)
{
	switch (kind) {
	case GGUF_U8:
		*out = *p;
		return true;
	case GGUF_U16:
		*out = gguf_le16(p);
		return true;
	case GGUF_U32:
		*out = gguf_le32(p);
		return true;
	case GGUF_U64:
		*out = gguf_le64(p);
		return true;
	default:
		return false;
	}
}

bool gguf_scalar_u64(u32 kind, const u8 *p, u64 *out)
{
	s64 v;

	if (scalar_unsigned(kind, p, out))
		return true;
	if (!scalar_signed(kind, p, &v) || v < 0)
		return false;
	*out = (u64)v;
	return true;
}

static bool scalar_s64(u32 kind, const u8 *p, s64 *out)
{
	u64 v;

	if (scalar_signed(kind, p, out))
		return true;
	if (!scalar_unsigned(kind, p, &v) || v > INT64_MAX)
		return false;
	*out = (s64)v;
	return true;
}

static bool scalar_real(u32 kind, const u8 *p, double *out)
{
	u32 bits = 0;
	u64 wide;
	float f;
	s64 v;

	if (kind == GGUF_F32) {
		bits = gguf_le32(p);
		memcpy(&f, &bits, sizeof(f));
		*out = f;
	} else if (kind == GGUF_F64) {
		wide = gguf_le64(p);
		memcpy(out, &wide, sizeof(*out));
	} else if (scalar_signed(kind, p, &v)) {
		*out = (double)v;
	} else if (scalar_unsigned(kind, p, &wide)) {
		*out = (double)wide;
	} else {
		return false;
	}
	return true;
}

static bool scalar_bool(u32 kind, const u8 *p, bool *out)
{
	if (kind != GGUF_BOOL)
		return false;
	*out = *p;
	return true;
}

static void str_at(const u8 *p, struct gguf_str *out)
{
	out->len = gguf_le64(p);
	out->at = (const char *)p + 8;
}

static const struct gguf_value *find(const struct gguf *g, const char *key)
{
	return gguf_part_find(gguf_first(g), key);
}

bool gguf_has(const struct gguf *g, const char *key)
{
	return find(g, key);
}

u32 gguf_nr_keys(const struct gguf *g)
{
	return gguf_first(g)->nr_values;
}

const char *gguf_key_at(const struct gguf *g, u32 i)
{
	return gguf_first(g)->values[i].key;
}

bool gguf_u64(const struct gguf *g, const char *key, u64 *out)
{
	const struct gguf_value *v = find(g, key);

	return v && gguf_scalar_u64(v->kind, v->at, out);
}

bool gguf_real(const struct gguf *g, const char *key, double *out)
{
	const struct gguf_value *v = find(g, key);

	return v && scalar_real(v->kind, v->at, out);
}

bool gguf_bool(const struct gguf *g, const char *key, bool *out)
{
	const struct gguf_value *v = find(g, key);

	return v && scalar_bool(v->kind, v->at, out);
}

bool gguf_str(const struct gguf *g, const char *key, struct gguf_str *out)
{
	const struct gguf_value *v = find(g, key);

	if (!v || v->kind != GGUF_STRING)
		return false;
	str_at(v->at, out);
	return true;
}

u64 gguf_nr_items(const struct gguf *g, const char *key)
{
	const struct gguf_value *v = find(g, key);

	return v && v->kind == GGUF_ARRAY ? v->nr : 0;
}

/* Item @i of an array, and its kind; NULL if there is none. */
static const u8 *item(const struct gguf *g, const char *key, u64 i, u32 *kind)
{
	const struct gguf_value *v = find(g, key);

	if (!v || v->kind != GGUF_ARRAY || i >= v->nr)
		return NULL;
	*kind = v->items;
	return v->strs ? v->strs[i] : v->at + i * gguf_kind_size(v->items);
}

bool gguf_item_u64(const struct gguf *g, const char *key, u64 i, u64 *out)
{
	u32 kind;
	const u8 *p = item(g, key, i, &kind);

	return p && gguf_scalar_u64(kind, p, out);
}

bool gguf_item_s64(const struct gguf *g, const char *key, u64 i, s64 *out)
{
	u32 kind;
	const u8 *p = item(g, key, i, &kind);

	return p && scalar_s64(kind, p, out);
}

bool gguf_item_real(const struct gguf *g, const char *key, u64 i, double *out)
{
	u32 kind;
	const u8 *p = item(g, key, i, &kind);

	return p && scalar_real(kind, p, out);
}

bool gguf_item_bool(const struct gguf *g, const char *key, u64 i, bool *out)
{
	u32 kind;
	const u8 *p = item(g, key, i, &kind);

	return p && scalar_bool(kind, p, out);
}

bool gguf_item_str(const struct gguf *g, const char *key, u64 i,
		   struct gguf_str *out)
{
	u32 kind;
	const u8 *p = item(g, key, i, &kind);

	if (!p || kind != GGUF_STRING)
		return false;
	str_at(p, out);
	return true;
}
