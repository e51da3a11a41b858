/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cors.h - which pages of other servers may use this one from a browser
 */
#ifndef RUNTIME_SERVER_CORS_H
#define RUNTIME_SERVER_CORS_H

#include <kvmm/http.h>

/**
 * struct cors - origins whose pages may read answers
 * @list: [@nr], each as a browser sends it, `https://chat.example.org`, or `*`
 * @any:  one of them is `*`
 */
struct cors {
	const char * const	*list;
	u32			nr;
	bool			any;
};

/* cors_is_origin() - is @s `*`, or an origin as browsers write it? */
bool cors_is_origin(const char *s);

/* cors_init() - take a list of origins, which must stay valid */
void cors_init(struct cors *cors, const char * const *list, u32 nr);

/* cors_headers() - write the headers of any answer to the request @h */
void cors_headers(const struct cors *cors, const struct http_head *h,
		  struct text *t);

/**
 * cors_preflight() - write the further headers of an answer to OPTIONS
 * @methods: that the path has
 */
void cors_preflight(const struct cors *cors, const struct http_head *h,
		    const char *methods, struct text *t);

#endif /* RUNTIME_SERVER_CORS_H */
