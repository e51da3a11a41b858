// SPDX-License-Identifier: Apache-2.0
/*
 * choice.c - a sample on its way to its client: tokens to text
 *
 *	ids of the backend -> detokenizer -> stop strings -> @out -> an event
 *
 * The backend appends ids and says when there will be no more.  A choice turns
 * new ids into text and decides how it ends.  It may end before the backend
 * knows: with a stop string, or with its last token.  A choice that is over
 * does not change.
 *
 * All of this runs on the loop of the call.
 */
#include "runtime/server/call.h"
#include "runtime/server/models.h"

static void choice_over(struct call *call, struct choice *ch,
			const char *reason)
{
	ch->over = true;
	ch->reason = reason;
	call->nr_over++;
}

static void choice_take(struct call *call, struct choice *ch, u32 id)
{
	ssize_t n;

	ch->taken++;
	n = detok_push(&ch->detok, id, call->piece, call->piece_max);
	if (n <= 0)
		return;
	if (ch->taken < call->params.sampling.min_tokens) {
		text_add(&ch->out, call->piece, (size_t)n);
		return;
	}
	ch->stop = stopper_push(&ch->stopper, call->piece, (size_t)n, &ch->out);
	if (ch->stop < 0)
		return;
	choice_over(call, ch, "stop");
	if (load_acquire(&ch->s->over))
		return;
	store_release(&ch->s->unwanted, 1);
	work_post(&call->work);
}

/*
 * Text held by the detokenizer belongs to the answer, and may complete a stop.
 */
static void choice_flush(struct call *call, struct choice *ch)
{
	ssize_t n = detok_flush(&ch->detok, call->piece, call->piece_max);

	if (n > 0)
		ch->stop = stopper_push(&ch->stopper, call->piece, (size_t)n,
					&ch->out);
	if (ch->stop < 0)
		stopper_end(&ch->stopper, &ch->out);
}

static bool is_own_id(const struct api_params *p, u32 id)
{
	u32 i;

	for (i = 0; i < p->nr_own_ids; i++)
		if (p->stop_ids[i] == id)
			return true;
	return false;
}

/* Return: false when the sample failed. */
static bool choice_end(struct call *call, struct choice *ch)
{
	const struct work_sample *s = ch->s;

	if (s->reason >= ENGINE_CANCELLED)
		return false;
	choice_flush(call, ch);
	if (!call->params.max_new) {
		choice_over(call, ch, "length");
		return true;
	}
	if (s->reason == ENGINE_STOP && is_own_id(&call->params, s->stop_id))
		ch->stop_id = s->stop_id;
	choice_over(call, ch, s->reason == ENGINE_STOP || ch->stop >= 0 ?
		    "stop" : "length");
	return true;
}

static void choice_time(struct call *call, struct choice *ch, u32 nr, s64 now)
{
	struct metrics *m = call_metrics(call);

	if (!call->first_ns) {
		call->first_ns = now;
		metrics_observe(m, METRIC_time_to_first_token_seconds,
				(double)(now - call->begin_ns) / 1e9, 1);
	}
	if (ch->last_ns)
		metrics_observe(m, METRIC_inter_token_latency_seconds,
				(double)(now - ch->last_ns) / 1e9 / nr, nr);
	ch->last_ns = now;
}

bool choice_read(struct call *call, struct choice *ch, s64 now)
{
	/* In this order: a sample that is over has all its tokens. */
	const u32 over = load_acquire(&ch->s->over);
	const u32 nr = load_acquire(&ch->s->nr);
	const u32 most = min(nr, call->params.max_new);
	const u32 before = ch->taken;

	while (ch->taken < most && !ch->over)
		choice_take(call, ch, ch->s->ids[ch->taken]);
	if (ch->taken > before)
		choice_time(call, ch, ch->taken - before, now);
	if (ch->over)
		return true;
	if (over)
		return choice_end(call, ch);
	/* The backend's end is still on its way, but its reason is known. */
	if (nr && ch->taken == call->params.max_new) {
		choice_flush(call, ch);
		choice_over(call, ch, ch->stop >= 0 ? "stop" : "length");
	}
	return true;
}

bool choice_has_news(const struct call *call, const struct choice *ch)
{
	if (ch->sent)
		return false;
	if (ch->over || ch->out.len)
		return true;
	return (call->params.return_ids || call->params.logprobs) &&
	       ch->taken > ch->told;
}

void choice_error(const struct call *call, const struct choice *ch,
		  struct api_error *err)
{
	const struct work_sample *s = ch->s;
	const char *why = *call->work.why ? call->work.why : strerror(-s->err);

	if (s->reason == ENGINE_CANCELLED) {
		api_fail(err, 503, "", "shutting_down",
			 "the server is shutting down");
		return;
	}
	switch (-s->err) {
	case EBUSY:
		api_fail(err, 429, "", "queue_full", "%s", why);
		break;
	case ETIMEDOUT:
		api_fail(err, 504, "", "request_timeout", "%s", why);
		break;
	case E2BIG:
	case EDQUOT:
	case EINVAL:
		api_fail(err, 400, "", "request_too_large", "%s", why);
		break;
	case ECONNRESET:
		/* The error may have come after the GPU failed. */
		if (!backend_admits(call->work.b, err))
			backend_gone(err);
		break;
	case ENODEV:		/* an error of the daemon */
	case ENOTRECOVERABLE:
		backend_lost(err);
		break;
	case ESHUTDOWN:		/* also of the daemon */
		api_fail(err, 503, "", "draining", "%s", why);
		break;
	case ENODATA:
		api_fail(err, 400, "", "no_token_allowed",
			 "%s: of what the request forbids and allows, nothing is left to generate",
			 why);
		break;
	case ENOMEM:
	case EAGAIN:
	case ENOSPC:
		api_fail(err, 503, "", "overloaded", "%s: try again in a moment", why);
		break;
	default:
		api_fail(err, 500, "", "engine_error", "%s", why);
		break;
	}
}
