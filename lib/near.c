// SPDX-License-Identifier: Apache-2.0
/*
 * near.c - the name that a misspelt word may mean
 *
 * A name is close if few letters differ, or if it begins with the word.
 */
#include <string.h>

#include <kvmm/near.h>

#define NEAR_MOST	3	/* letters in which a word may differ, and at most half of it */
#define NEAR_BEGIN	3	/* letters of a word that is the beginning of a name */
#define NAME_MOST	40	/* longest name that is compared */

/* Number of letters changed, added or left out; words of at most NAME_MOST. */
static u32 distance(const char *a, size_t la, const char *b, size_t lb)
{
	u32 row[NAME_MOST + 1];
	size_t i, j;

	if (la > NAME_MOST || lb > NAME_MOST)
		return UINT32_MAX;
	for (j = 0; j <= lb; j++)
		row[j] = (u32)j;
	for (i = 1; i <= la; i++) {
		u32 corner = row[0];

		row[0] = (u32)i;
		for (j = 1; j <= lb; j++) {
			const u32 above = row[j];
			const u32 swap = corner + (a[i - 1] != b[j - 1]);

			row[j] = min(min(above, row[j - 1]) + 1, swap);
			corner = above;
		}
	}
	return row[lb];
}

void kv_near_init(struct kv_near *n, const char *word, size_t len)
{
	*n = (struct kv_near){
		.word = word, .len = len,
		.least = (u32)min(len / 2, (size_t)NEAR_MOST) + 1,
	};
}

void kv_near_try(struct kv_near *n, const char *name)
{
	u32 d = distance(n->word, n->len, name, strlen(name));

	if (n->len >= NEAR_BEGIN && !strncmp(name, n->word, n->len))
		d = 1;
	if (d >= n->least)
		return;
	n->least = d;
	n->best = name;
}
