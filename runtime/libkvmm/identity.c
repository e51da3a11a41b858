// SPDX-License-Identifier: Apache-2.0
/*
 * identity.c - the digest of a model identity
 *
 * Two streams of XXH3-128 with different seeds over the same bytes, one digest
 * after the other: 256 bits.  The digest has to tell models apart that differ
 * by accident or by configuration.  It is trusted inside one tenant only, so it
 * needs no defence against an attacker who searches for collisions.
 *
 * Each field goes in as {length of the tag, tag, length of the data, data},
 * so that no two lists of fields give the same bytes.  Large data is fed in
 * slices that stay in the cache for the second stream.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/libkvmm/internal.h"

#define ID_STREAMS	2
#define ID_SLICE	65536
#define ID_ALIGN	64
#define ID_SEED		0x6b766d6d2d696421ull	/* "kvmm-id!" */

_Static_assert(sizeof(struct kvmm_identity) >=
	       ID_STREAMS * sizeof(XXH3_state_t) + ID_ALIGN - sizeof(u64),
	       "struct kvmm_identity holds both streams, aligned");
_Static_assert(ID_STREAMS * sizeof(XXH128_canonical_t) == KVMM_IDENTITY_LEN,
	       "the streams fill the digest");

/* The caller's memory is aligned to 8 bytes; the streams need 64. */
static XXH3_state_t *id_streams(struct kvmm_identity *id)
{
	return (XXH3_state_t *)ALIGN_UP((uintptr_t)id->state, ID_ALIGN);
}

static void id_update(struct kvmm_identity *id, const void *data, size_t len)
{
	XXH3_state_t *st = id_streams(id);
	const char *p = data;
	size_t n;
	int i;

	for (; len; len -= n, p += n) {
		n = min(len, (size_t)ID_SLICE);
		for (i = 0; i < ID_STREAMS; i++)
			XXH3_128bits_update(&st[i], p, n);
	}
}

static void id_update_len(struct kvmm_identity *id, u64 len)
{
	u8 le[8];
	int i;

	for (i = 0; i < 8; i++)
		le[i] = (u8)(len >> (8 * i));
	id_update(id, le, sizeof(le));
}

void kvmm_identity_init(struct kvmm_identity *id)
{
	XXH3_state_t *st = id_streams(id);
	int i;

	for (i = 0; i < ID_STREAMS; i++) {
		XXH3_INITSTATE(&st[i]);
		XXH3_128bits_reset_withSeed(&st[i], ID_SEED + (u64)i);
	}
}

void kvmm_identity_add(struct kvmm_identity *id, const char *tag,
		       const void *data, size_t len)
{
	size_t tag_len = strlen(tag);

	id_update_len(id, tag_len);
	id_update(id, tag, tag_len);
	id_update_len(id, len);
	id_update(id, data, len);
}

void kvmm_identity_final(struct kvmm_identity *id, u8 *out)
{
	XXH3_state_t *st = id_streams(id);
	XXH128_canonical_t c;
	int i;

	for (i = 0; i < ID_STREAMS; i++) {
		XXH128_canonicalFromHash(&c, XXH3_128bits_digest(&st[i]));
		memcpy(out + i * sizeof(c), &c, sizeof(c));
	}
}
