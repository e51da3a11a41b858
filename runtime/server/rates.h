/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.h - a line of the log about the work of the last seconds
 */
#ifndef RUNTIME_SERVER_RATES_H
#define RUNTIME_SERVER_RATES_H

#include "runtime/server/backend.h"

struct event;
struct event_base;

/**
 * struct rates - what the next line is compared with
 * @backends: [@nr]
 * @last:     [@nr] the counters of each at the last look
 * @last_ns:  when that was
 */
struct rates {
	struct backend		*backends;
	u32			nr;
	struct backend_view	*last;
	s64			last_ns;
	struct event		*ev;
};

/**
 * rates_start() - write a line for each backend that worked, again and again
 * @every_s: seconds between two lines; 0: no line
 *
 * Context: the lines are written on the thread of @base.
 * Return: 0 or -ENOMEM; call rates_stop() in both cases.
 */
int __must_check rates_start(struct rates *r, struct event_base *base,
			     struct backend *backends, u32 nr, u32 every_s);
void rates_stop(struct rates *r);

/* Bytes of a line and of its members in JSON. */
#define RATES_TEXT	512u

/**
 * rates_text() - describe the work between two looks
 * @ns:   time between them
 * @text: RATES_TEXT bytes
 * @json: RATES_TEXT bytes
 *
 * Return: false: nothing ran, and nothing was waiting.
 */
bool rates_text(const char *name, const struct backend_view *from,
		const struct backend_view *to, s64 ns, char *text, char *json);

#endif /* RUNTIME_SERVER_RATES_H */
