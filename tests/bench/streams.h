/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - clients that read many event streams at once, and count
 */
#ifndef TESTS_BENCH_STREAMS_H
#define TESTS_BENCH_STREAMS_H

#include "tests/bench/bench.h"

/* What came since streams_open(). */
struct streams_count {
	u64	bytes;
	u64	events;		/* but for those that only end a stream */
	u64	ended;		/* answers that were complete */
};

struct streams;

/**
 * streams_open() - @nr connections to a port of 127.0.0.1, each with a request
 * @tokens: 0: nothing is asked, events come by themselves; else prompts
 *          differ, and lengths do around this number of tokens
 *
 * Who has its whole answer asks again on the same connection.
 */
struct streams *streams_open(u32 port, u32 nr, u32 tokens);

/* Read what comes for @ms. */
void streams_run(struct streams *s, u32 ms);

/* Read until every connection had an event; dies after @ms. */
void streams_await(struct streams *s, u32 ms);

void streams_count(const struct streams *s, struct streams_count *c);

/*
 * Keep, from now on, the time in ticks from what a stream was sent to what it
 * is sent next, in one answer; NULL: no more.
 */
void streams_watch(struct streams *s, struct bench_samples *gaps);

/* Close all, in the middle of whatever they do. */
void streams_close(struct streams *s);

/* What GET answers, head and all, as far as there is room. */
void streams_get(u32 port, const char *path, char *text, size_t max);

/* floor.c: a process that does nothing but write events, with libevent. */
struct floor_server {
	int	pid;
	u32	port;
};

/*
 * Every connection gets @bytes in one chunk, then all get the next; @nr of
 * them must have come first.
 */
void floor_start(struct floor_server *f, u32 nr, u32 bytes);
void floor_stop(struct floor_server *f);

#endif /* TESTS_BENCH_STREAMS_H */
