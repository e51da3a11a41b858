// SPDX-License-Identifier: Apache-2.0
/*
 * bench_form.c - the form of requests that a server accepts
 *
 * OpenAI's API has few of the things that a measurement needs: answers of a
 * given length (ignore_eos), prompts of a given length (token ids), and the
 * number of tokens at the end of a stream.  Servers differ, so one small
 * request asks for all of them, and refused ones are dropped, one after the
 * other, until the server accepts the request.  The user is told, since it
 * changes the measurement.
 */
#include <sysexits.h>

#include "runtime/cli/bench_serve.h"
#include "runtime/cli/cli.h"

#define PROBE_TOKENS	8u
#define PROBE_OUT	2u
#define PROBE_SEED	0x70726f6265ull

void form_body(const struct ask_form *f, const struct workload *w,
	       const struct bench_request *r, struct text *t)
{
	text_puts(t, "{\"model\":");
	text_jsons(t, f->model);
	if (f->chat) {
		text_puts(t, ",\"messages\":[{\"role\":\"user\",\"content\":");
		workload_json_text(w, r, t);
		text_puts(t, "}]");
	} else {
		text_puts(t, ",\"prompt\":");
		if (f->ids)
			workload_json_ids(w, r, f->vocab, t);
		else
			workload_json_text(w, r, t);
	}
	text_printf(t, ",\"max_tokens\":%u,\"temperature\":%g", r->out,
		    f->temperature);
	if (f->ignore_eos)
		text_puts(t, ",\"ignore_eos\":true");
	text_puts(t, ",\"stream\":true");
	if (f->usage)
		text_puts(t, ",\"stream_options\":{\"include_usage\":true}");
	text_puts(t, "}");
}

/* ---- the probe ---- */

/* Read the answer to a probe.  Return: does the server count tokens? */
static bool take_probe(struct ask_form *f, const struct text *t)
{
	struct usage u = { 0 };
	size_t at = 0, n;
	const char *p;

	while (web_event(t, &at, &p, &n)) {
		json_t *v = json_loadb(p, n, 0, NULL);

		usage_take(&u, json_object_get(v, "usage"));
		json_decref(v);
	}
	f->probe_in += u.in;
	f->probe_out += u.out;
	return u.known;
}

static bool is_stream(const struct text *t)
{
	size_t at = 0, n;
	const char *p;

	return web_event(t, &at, &p, &n);
}

/*
 * Make one attempt.  Return: 0; -EINVAL with the server's words in @why when it
 * refuses part of the form; else an exit code after a line.
 */
static int probe(struct ask_form *f, const struct web_server *s,
		 const char *key, u32 timeout_s, char *why, size_t len)
{
	struct text body = { 0 };
	struct workload w;
	struct web_call c;
	json_t *v;
	int ret = 0;

	workload_init(&w);
	if (workload_add(&w, 0, PROBE_OUT) ||
	    workload_piece(&w, PROBE_SEED, PROBE_TOKENS)) {
		workload_free(&w);
		return web_failed(s, -ENOMEM, timeout_s);
	}
	form_body(f, &w, w.list, &body);
	workload_free(&w);
	ret = web_whole(&c, s, f->path, key, &body, timeout_s);
	text_free(&body);
	f->probes++;
	v = ret || !c.body.len ? NULL :
	    json_loadb(c.body.p, c.body.len, 0, NULL);
	if (!ret && c.status == 200) {
		if (!is_stream(&c.body))
			ret = web_failed(s, -EPROTO, timeout_s);
		else
			f->usage &= take_probe(f, &c.body);
	} else if (!ret && (c.status == 400 || c.status == 422 ||
			    c.status == 500)) {
		snprintf(why, len, "%d: %s", c.status,
			 web_error_text(v) ? web_error_text(v) : "no reason");
		web_tame(why);
		ret = -EINVAL;
	} else if (!ret) {
		ret = web_refused(s, c.status, web_error_text(v));
	}
	json_decref(v);
	web_call_end(&c);
	return ret;
}

static void say_given_up(const struct ask_form *f, const struct ask_form *want,
			 const struct web_server *s, const char *why)
{
	if (want->ids && !f->ids)
		pr_warn("%s takes no token ids (%s): prompts are text, whose tokens the server counts",
			s->shown, why);
	if (want->ignore_eos && !f->ignore_eos)
		pr_warn("%s takes no ignore_eos (%s): answers may be shorter than asked for",
			s->shown, why);
	if (want->usage && !f->usage)
		pr_warn("%s does not count tokens: events that bring text are counted in their place",
			s->shown);
}

int form_probe(struct ask_form *f, const struct web_server *s, const char *key,
	       u32 timeout_s, bool text)
{
	/* Parts that are dropped, the less important ones first. */
	enum { EOS = 1, IDS = 2, USAGE = 4 };
	static const u32 tries[] = { 0, EOS, IDS, IDS | EOS, USAGE,
				     USAGE | EOS, USAGE | IDS,
				     USAGE | IDS | EOS };
	struct ask_form want = *f;
	char why[120] = "", now[120];
	char *p;
	u32 i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(tries); i++) {
		if ((tries[i] & IDS) && (!text || !want.ids))
			continue;
		f->ids = want.ids && !(tries[i] & IDS);
		f->ignore_eos = want.ignore_eos && !(tries[i] & EOS);
		f->usage = want.usage && !(tries[i] & USAGE);
		ret = probe(f, s, key, timeout_s, now, sizeof(now));
		if (ret != -EINVAL)
			break;
		if (!*why)
			memcpy(why, now, sizeof(why));
	}
	for (p = why; *p; p++)
		if ((u8)*p < ' ' || *p == 0x7f)
			*p = '?';
	if (ret == -EINVAL) {
		pr_err("%s refuses a prompt of %u tokens: %s", s->shown,
		       PROBE_TOKENS, why);
		return EX_DATAERR;
	}
	if (!ret)
		say_given_up(f, &want, s, why);
	return ret;
}
