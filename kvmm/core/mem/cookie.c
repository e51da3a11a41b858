// SPDX-License-Identifier: Apache-2.0
/*
 * cookie.c - the name of a prefix, as a client may hold it
 *
 * A lookup of a long prompt comes in pieces, and the core keeps nothing between
 * them.  So the answer to a piece has a cookie, which names the prefix up to
 * there, and the client sends it with the next piece.
 *
 * The hash that makes names (index.c) is not cryptographic.  A client that saw
 * names of prefixes that it chose could compute the secret from them.  So a
 * cookie is a name that is enciphered, with 32 bytes of the tenant's secret as
 * the key.  Two things are mixed in: the root of the chain, which follows from
 * the salt, and the length of the prefix.  A cookie that comes with another
 * salt or another length becomes a name that no block has, and so does a cookie
 * that a client made up.
 *
 * The cipher is Speck128/256 (Beaulieu et al., 2013): a permutation of 16 bytes,
 * so that a cookie is no longer than a name.
 */
#include "kvmm/core/mem/mem.h"

#define SPECK_ROUNDS	34u
#define KEY_OFFSET	(CORE_SECRET_LEN - 32)	/* of the key in a tenant's secret */

static u64 ror64(u64 x, u32 n)
{
	return x >> n | x << (64 - n);
}

static u64 rol64(u64 x, u32 n)
{
	return x << n | x >> (64 - n);
}

/* The keys of all rounds from a key of four words, the lowest first. */
static void round_keys(const u64 *key, u64 *k)
{
	u64 l[3] = { key[1], key[2], key[3] };
	u32 i;

	k[0] = key[0];
	for (i = 0; i < SPECK_ROUNDS - 1; i++) {
		l[i % 3] = (k[i] + ror64(l[i % 3], 8)) ^ i;
		k[i + 1] = rol64(k[i], 3) ^ l[i % 3];
	}
}

/* cookie_encipher() - encipher two words in place; @key: four words */
void cookie_encipher(const u64 *key, u64 *x)
{
	u64 k[SPECK_ROUNDS];
	u32 i;

	round_keys(key, k);
	for (i = 0; i < SPECK_ROUNDS; i++) {
		x[0] = (ror64(x[0], 8) + x[1]) ^ k[i];
		x[1] = rol64(x[1], 3) ^ x[0];
	}
}

/* cookie_decipher() - undo cookie_encipher() */
void cookie_decipher(const u64 *key, u64 *x)
{
	u64 k[SPECK_ROUNDS];
	u32 i;

	round_keys(key, k);
	for (i = SPECK_ROUNDS; i--;) {
		x[1] = ror64(x[1] ^ x[0], 3);
		x[0] = rol64((x[0] ^ k[i]) - x[1], 8);
	}
}

static const u64 *cookie_key(const struct core *c, const struct kv_domain *d)
{
	static_assert(offsetof(struct kv_tenant, secret) % 8 == 0 &&
		      KEY_OFFSET % 8 == 0, "the key is words");
	return (const void *)(c->tenants[d->tenant].secret + KEY_OFFSET);
}

/**
 * cookie_make() - the cookie of a prefix
 * @root:   root of its chain
 * @name:   its name
 * @len:    its tokens
 * @cookie: two words; zeros when @len is 0
 */
void cookie_make(const struct core *c, const struct kv_domain *d,
		 const u64 *root, const u64 *name, u32 len, u64 *cookie)
{
	cookie[0] = 0;
	cookie[1] = 0;
	if (!len)
		return;
	cookie[0] = name[0] ^ root[0] ^ len;
	cookie[1] = name[1] ^ root[1];
	cookie_encipher(cookie_key(c, d), cookie);
}

/**
 * cookie_read() - the name of a prefix, from its cookie
 * @root:   root of the chain that the prefix is said to be of
 * @cookie: of a client: two words of any value
 * @len:    tokens that the prefix is said to have
 * @name:   two words; those of no prefix if the cookie is wrong
 */
void cookie_read(const struct core *c, const struct kv_domain *d,
		 const u64 *root, const u64 *cookie, u32 len, u64 *name)
{
	u64 x[2] = { cookie[0], cookie[1] };

	name[0] = root[0];
	name[1] = root[1];
	if (!len)
		return;
	cookie_decipher(cookie_key(c, d), x);
	name[0] ^= x[0] ^ len;
	name[1] ^= x[1];
}
