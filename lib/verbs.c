// SPDX-License-Identifier: Apache-2.0
/*
 * verbs.c - requests at the daemon's own sockets, and the right that each needs
 */
#include <string.h>

#include <kvmm/verbs.h>

const struct kv_verb kv_verbs[] = {
#define x(_socket, _name, _right, _text)				\
	{ .socket = KV_SOCKET_##_socket, .name = #_name,		\
	  .right = KV_RIGHT_##_right, .text = _text },
	KV_VERBS(x)
#undef x
};

const u32 kv_nr_verbs = ARRAY_SIZE(kv_verbs);

const struct kv_verb *kv_verb_find(enum kv_socket socket, const char *req)
{
	const size_t len = strcspn(req, " ");
	u32 i;

	for (i = 0; i < kv_nr_verbs; i++)
		if (kv_verbs[i].socket == socket &&
		    strlen(kv_verbs[i].name) == len &&
		    !memcmp(kv_verbs[i].name, req, len))
			return &kv_verbs[i];
	return NULL;
}
