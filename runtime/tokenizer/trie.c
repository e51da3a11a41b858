// SPDX-License-Identifier: Apache-2.0
/*
 * trie.c - find the added tokens in a text byte by byte
 *
 * A model adds a few to a few thousand tokens that are matched before any
 * splitting: control tokens mostly.  The longest token that begins at a
 * position wins.  Most positions of a text begin none of them, so the first
 * byte has a table of its own and costs one load.  Below it, children are
 * lists, because a node rarely has more than a few.
 *
 * Only the loader writes it.
 */
#include <stdlib.h>

#include "runtime/tokenizer/internal.h"

static u32 node_new(struct trie *t, u8 byte)
{
	struct trie_node *nodes;
	u32 cap;

	if (t->nr + 1 >= t->cap) {
		cap = t->cap ? t->cap * 2 : 64;
		nodes = realloc(t->nodes, (size_t)cap * sizeof(*nodes));
		if (!nodes)
			return 0;
		t->nodes = nodes;
		t->cap = cap;
	}
	t->nr++;
	t->nodes[t->nr] = (struct trie_node){
		.byte = byte, .id = TOKENIZER_NO_ID,
	};
	return t->nr;
}

static u32 child_find(const struct trie *t, u32 node, u8 byte)
{
	u32 c = t->nodes[node].child;

	while (c && t->nodes[c].byte != byte)
		c = t->nodes[c].sibling;
	return c;
}

static u32 child_get(struct trie *t, u32 node, u8 byte)
{
	u32 c = child_find(t, node, byte);

	if (c)
		return c;
	c = node_new(t, byte);
	if (!c)
		return 0;
	t->nodes[c].sibling = t->nodes[node].child;
	t->nodes[node].child = c;
	return c;
}

int trie_insert(struct trie *t, const char *bytes, size_t len, u32 id)
{
	u8 first = (u8)bytes[0];
	u32 node = t->root[first];
	size_t i;

	if (!node) {
		node = node_new(t, first);
		if (!node)
			return -ENOMEM;
		t->root[first] = node;
	}
	for (i = 1; i < len; i++) {
		node = child_get(t, node, (u8)bytes[i]);
		if (!node)
			return -ENOMEM;
	}
	t->nodes[node].id = id;
	return 0;
}

u32 trie_longest(const struct trie *t, const char *p, size_t n, size_t *len)
{
	u32 node = t->root[(u8)p[0]], id = TOKENIZER_NO_ID;
	size_t depth = 1;

	while (node) {
		if (t->nodes[node].id != TOKENIZER_NO_ID) {
			id = t->nodes[node].id;
			*len = depth;
		}
		if (depth == n)
			break;
		node = child_find(t, node, (u8)p[depth++]);
	}
	return id;
}

void trie_free(struct trie *t)
{
	free(t->nodes);
	memset(t, 0, sizeof(*t));
}
