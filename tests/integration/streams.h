/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - many event streams at once, read by one thread
 *
 * Clients of /v1/completions ask for a stream with token ids.  Chunks, events
 * and JSON are judged as they arrive.  The first fault is kept as a line, so
 * that a test can name the stream.
 */
#ifndef TESTS_STREAMS_H
#define TESTS_STREAMS_H

#include <kvmm/types.h>

#define STREAM_IDS	256u	/* of one stream at most */
#define STREAM_TEXT	4096u

/**
 * struct stream - one client
 * @fd:     -1: none
 * @in:     bytes received and not judged yet, @len of them
 * @nr_ids: of @ids, received so far
 * @text:   text of all its events
 * @began:  its first event came
 * @done:   "[DONE]" came
 * @over:   the answer is complete, chunks and all
 * @finish: its finish_reason, "" before
 * @why:    the first fault, "" for none
 * @last:   time of its last event, in ns
 * @sip_ms: it reads a little every so many ms; 0: all that arrives
 * @next_sip: next time, by now_ms()
 * @gone_at: time to leave, by now_ms(); 0: never
 * @tag, @tokens: of the caller
 */
struct stream {
	int	fd;
	char	*in;
	size_t	len;
	size_t	cap;
	u32	nr_ids;
	u32	ids[STREAM_IDS];
	char	text[STREAM_TEXT];
	bool	headed;
	bool	began;
	bool	done;
	bool	over;
	char	finish[16];
	char	why[160];
	u64	last;
	u32	sip_ms;
	u64	next_sip;
	u64	gone_at;
	u32	tag;
	u32	tokens;
};

/**
 * struct streams - all streams
 * @at_once: most streams that had begun and were not over
 * @gaps:    microseconds between two events of a stream, the first @nr_gaps
 * @ended:   streams that were over, or left at their time
 */
struct streams {
	struct stream	*s;
	u32		nr;
	int		efd;
	u32		now;
	u32		at_once;
	u32		*gaps;
	u32		nr_gaps;
	u32		max_gaps;
	u32		ended;
};

/* Room for @nr streams; fails the test when there is no memory. */
void streams_init(struct streams *all, u32 nr);
void streams_free(struct streams *all);

/*
 * Connect and send the request; @prompt needs no escapes.  With @sip_ms the
 * receive buffer is minimal.
 */
void stream_begin(struct streams *all, struct stream *s, u32 port,
		  const char *prompt, u32 tokens, u32 sip_ms);
/* Close it at its current state. */
void stream_end(struct streams *all, struct stream *s);

/* Read arriving bytes, for at most @ms. */
void streams_turn(struct streams *all, u32 ms);

/* Median and 99th percentile of the gaps, in microseconds; 0 without any. */
void streams_gaps(struct streams *all, u32 *median, u32 *p99);

#endif /* TESTS_STREAMS_H */
