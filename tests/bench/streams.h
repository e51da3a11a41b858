/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - clients that read many event streams at once, and count
 */
#ifndef TESTS_BENCH_STREAMS_H
#define TESTS_BENCH_STREAMS_H

#include "tests/bench/bench.h"

/* Counts since streams_open(). */
struct streams_count {
	u64	bytes;
	u64	events;		/* without those that only end a stream */
	u64	ended;		/* answers that were complete */
};

struct streams;

/**
 * streams_open() - @nr connections to a port of 127.0.0.1, each with a request
 * @tokens: 0: no request, events come by themselves; else prompts differ, and
 *          lengths do around this number of tokens
 *
 * A client that has its whole answer asks again on the same connection.
 */
struct streams *streams_open(u32 port, u32 nr, u32 tokens);

/* Read for @ms. */
void streams_run(struct streams *s, u32 ms);

/* Read until every connection had an event; after @ms end the benchmark. */
void streams_await(struct streams *s, u32 ms);

void streams_count(const struct streams *s, struct streams_count *c);

/*
 * From now on, keep the ticks from one read of events to the next, in one answer
 * of a stream; NULL: keep no more.
 */
void streams_watch(struct streams *s, struct bench_samples *gaps);

/* Close all connections, even in the middle of an answer. */
void streams_close(struct streams *s);

/* The answer to GET, head and body, as far as there is room. */
void streams_get(u32 port, const char *path, char *text, size_t max);

/* floor.c: a process that only writes events, with libevent. */
struct floor_server {
	int	pid;
	u32	port;
};

/*
 * Send @bytes to every connection in one chunk, then the next to all; wait first
 * until @nr of them have come.
 */
void floor_start(struct floor_server *f, u32 nr, u32 bytes);
void floor_stop(struct floor_server *f);

#endif /* TESTS_BENCH_STREAMS_H */
