// SPDX-License-Identifier: Apache-2.0
/*
 * bench_data.c - workloads of kvrt bench
 *
 * The ShareGPT shape needs no download.  Its means are those of the vLLM paper
 * (Kwon et al., SOSP 2023, section 6.1) for the dataset, 161.31 tokens of
 * prompt and 337.99 of answer.  The shape is our own choice: a mixture of two
 * log-normal distributions each, short and long, cut to 4..1024 tokens as in
 * vLLM's benchmark.  The medians of the long halves are set so that the cut
 * mixtures have the right means; a test checks the means.
 *
 * Token ids avoid the lowest ones, which are special tokens and bytes in most
 * vocabularies.  As text a token is a short English word with a blank before
 * it, which is one token in most of them; the report uses the server's own
 * count.
 */
#include <math.h>
#include <stdlib.h>
#include <sysexits.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cli.h"

#define DATA_ID_MIN	260u
#define DATA_SHARE_MIN	4.0
#define DATA_SHARE_MAX	1024.0

/* Streams of random numbers, so that one choice does not affect another. */
enum { STREAM_LENGTHS = 1, STREAM_PIECES, STREAM_PREFIXES };

/* Two log-normal distributions: medians, sigmas, share of the first. */
struct mixture {
	double	part;
	double	median[2];
	double	sigma[2];
};

static const struct mixture share_in = {
	.part = 0.65, .median = { 24, 400.4 }, .sigma = { 0.9, 0.9 },
};

static const struct mixture share_out = {
	.part = 0.25, .median = { 20, 438.3 }, .sigma = { 1.0, 0.7 },
};

/* Words used as tokens. */
static const char * const words[] = {
	"the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as",
	"was", "with", "be", "by", "on", "not", "he", "his", "but", "at", "are",
	"this", "have", "from", "or", "had", "an", "they", "which", "one",
	"you", "were", "all", "her", "she", "there", "would", "their", "we",
	"him", "been", "has", "when", "who", "will", "no", "more", "if", "out",
	"so", "up", "said", "what", "its", "about", "than", "into", "them",
	"can", "only", "other", "time", "new",
};

/* ---- building ---- */

void workload_init(struct workload *w)
{
	memset(w, 0, sizeof(*w));
}

void workload_free(struct workload *w)
{
	free(w->list);
	free(w->pieces);
	memset(w, 0, sizeof(*w));
}

int workload_add(struct workload *w, double at, u32 out)
{
	const u32 cap = max(2 * w->cap, 64u);
	struct bench_request *list;

	if (w->nr == w->cap) {
		list = reallocarray(w->list, cap, sizeof(*list));
		if (!list)
			return -ENOMEM;
		w->list = list;
		w->cap = cap;
	}
	w->list[w->nr++] = (struct bench_request){
		.at = at, .out = out, .first = w->nr_pieces,
	};
	return 0;
}

int workload_piece(struct workload *w, u64 seed, u32 nr)
{
	struct bench_request *r = &w->list[w->nr - 1];
	const u32 cap = max(2 * w->cap_pieces, 64u);
	struct bench_piece *pieces;

	if (w->nr_pieces == w->cap_pieces) {
		pieces = reallocarray(w->pieces, cap, sizeof(*pieces));
		if (!pieces)
			return -ENOMEM;
		w->pieces = pieces;
		w->cap_pieces = cap;
	}
	w->pieces[w->nr_pieces++] = (struct bench_piece){ seed, nr };
	r->in += nr;
	r->nr++;
	return 0;
}

/* ---- datasets ---- */

static u32 scatter(struct draw *d, u32 len, double ratio)
{
	const double lo = floor(len * (1 - ratio)), hi = ceil(len * (1 + ratio));

	return draw_between(d, (u32)max(lo, 1.0), (u32)max(hi, 1.0));
}

static int make_random(struct workload *w, const struct bench_data_opts *o,
		       u64 seed, double ratio)
{
	struct draw lengths, pieces;
	u32 i, in, out;

	draw_seed(&lengths, seed, STREAM_LENGTHS);
	draw_seed(&pieces, seed, STREAM_PIECES);
	for (i = 0; i < o->num_prompts; i++) {
		in = scatter(&lengths, o->input_len, ratio);
		out = scatter(&lengths, o->output_len, ratio);
		if (workload_add(w, 0, out) ||
		    workload_piece(w, draw_u64(&pieces), in))
			return -ENOMEM;
	}
	return 0;
}

static u32 draw_mixture(struct draw *d, const struct mixture *m)
{
	const u32 i = draw_unit(d) > m->part;
	double v;

	do {
		v = m->median[i] * exp(m->sigma[i] * draw_normal(d));
	} while (v < DATA_SHARE_MIN || v > DATA_SHARE_MAX);
	return (u32)lround(v);
}

static int make_sharegpt(struct workload *w, const struct bench_data_opts *o,
			 u64 seed)
{
	struct draw lengths, pieces;
	u32 i, in;

	draw_seed(&lengths, seed, STREAM_LENGTHS);
	draw_seed(&pieces, seed, STREAM_PIECES);
	for (i = 0; i < o->num_prompts; i++) {
		in = draw_mixture(&lengths, &share_in);
		if (workload_add(w, 0, draw_mixture(&lengths, &share_out)) ||
		    workload_piece(w, draw_u64(&pieces), in))
			return -ENOMEM;
	}
	return 0;
}

/* All beginnings are equally frequent, in random order. */
static int make_prefix(struct workload *w, const struct bench_data_opts *o,
		       u64 seed)
{
	struct draw pieces, prefixes;
	struct bench_request r;
	u64 base;
	u32 i, k;

	draw_seed(&pieces, seed, STREAM_PIECES);
	draw_seed(&prefixes, seed, STREAM_PREFIXES);
	base = draw_u64(&prefixes);
	for (i = 0; i < o->num_prompts; i++) {
		if (workload_add(w, 0, o->output_len) ||
		    workload_piece(w, base + i % o->num_prefixes,
				   o->prefix_len))
			return -ENOMEM;
		if (o->suffix_len &&
		    workload_piece(w, draw_u64(&pieces), o->suffix_len))
			return -ENOMEM;
	}
	for (i = w->nr - 1; i; i--) {
		k = draw_between(&prefixes, 0, i);
		r = w->list[i];
		w->list[i] = w->list[k];
		w->list[k] = r;
	}
	return 0;
}

static int make_trace(struct workload *w, const struct bench_data_opts *o)
{
	FILE *f;
	int ret;

	if (!o->trace) {
		pr_err("--dataset trace: the file is missing: give --trace FILE");
		return EX_USAGE;
	}
	f = fopen(o->trace, "re");
	if (!f) {
		pr_err("%s: %s", o->trace, strerror(errno));
		return errno == ENOENT ? EX_NOINPUT : EX_IOERR;
	}
	ret = trace_read(w, f, o->trace, o->num_prompts);
	fclose(f);
	return ret;
}

/*
 * Shorten @r, its answer included, to @most tokens; the prompt only if needed.
 */
static bool cut_request(struct workload *w, struct bench_request *r, u32 most)
{
	u32 room, i, sum = 0;

	if ((u64)r->in + r->out <= most)
		return false;
	if (r->in >= most) {
		room = most - 1;
		for (i = 0; i < r->nr && sum < room; i++) {
			struct bench_piece *p = &w->pieces[r->first + i];

			p->nr = min(p->nr, room - sum);
			sum += p->nr;
		}
		r->nr = i;
		r->in = sum;
		w->starved += r->out > 1;
	}
	r->out = most - r->in;
	return true;
}

int workload_make(struct workload *w, const struct bench_data_opts *o,
		  u32 max_len)
{
	double ratio = 0;
	u64 seed = 0;
	int ret;
	u32 i;

	if (o->trace && o->dataset != BENCH_TRACE) {
		pr_err("--trace is for --dataset trace: give that too");
		return EX_USAGE;
	}
	if (cli_number("range-ratio", o->range_ratio, 0, 0.999999, &ratio) ||
	    cli_whole("seed", o->seed, INT64_MAX, &seed))
		return EX_USAGE;
	switch ((enum bench_dataset)o->dataset) {
	case BENCH_RANDOM:
		ret = make_random(w, o, seed, ratio);
		break;
	case BENCH_SHAREGPT:
		ret = make_sharegpt(w, o, seed);
		break;
	case BENCH_PREFIX:
		ret = make_prefix(w, o, seed);
		break;
	case BENCH_TRACE:
	default:
		ret = make_trace(w, o);
	}
	if (ret < 0) {
		pr_err("no memory for %u requests: give fewer", o->num_prompts);
		return EX_OSERR;
	}
	for (i = 0; !ret && max_len > 1 && i < w->nr; i++)
		w->cut += cut_request(w, &w->list[i], max_len);
	return ret;
}

/* Options with which requests of @most tokens are whole. */
static void format_remedy(const struct bench_data_opts *o, u32 most, char *buf,
			  size_t len)
{
	double ratio = 0;
	u32 room;

	if (o->dataset == BENCH_PREFIX) {
		snprintf(buf, len, ": give a smaller --prefix-len or --suffix-len");
		return;
	}
	if (o->dataset != BENCH_RANDOM) {
		snprintf(buf, len, ": take a model with a longer context");
		return;
	}
	(void)cli_number("range-ratio", o->range_ratio, 0, 0.999999, &ratio);
	/* Each of the two lengths may be rounded up. */
	room = ratio > 0 ? (u32)((most - 1) / (1 + ratio)) : most;
	if (room > o->output_len)
		snprintf(buf, len, ": give --input-len %u or less",
			 room - o->output_len);
	else
		snprintf(buf, len, ": give --input-len %u --output-len %u or less",
			 max(room / 2, 1u), max(room / 2, 1u));
}

int workload_judge(const struct workload *w, const struct bench_data_opts *o,
		   u32 max_len, bool quiet)
{
	char remedy[80];

	if (!w->cut)
		return 0;
	format_remedy(o, max_len, remedy, sizeof(remedy));
	if (w->starved == w->nr) {
		pr_err("no prompt leaves room for its answer in a context of %u tokens%s",
		       max_len, remedy);
		return EX_DATAERR;
	}
	if (!quiet)
		pr_warn("%u of %u requests are cut to %u tokens, to fit the model's context%s",
			w->cut, w->nr, max_len, remedy);
	return 0;
}

/* ---- tokens ---- */

static u64 token_hash(const struct bench_piece *p, u32 i)
{
	return draw_mix(p->seed + (u64)(i + 1) * 0x9e3779b97f4a7c15ull);
}

static u32 token_id(const struct bench_piece *p, u32 i, u32 vocab)
{
	const u32 lo = vocab > 2 * DATA_ID_MIN ? DATA_ID_MIN : 0;

	return lo + (u32)(token_hash(p, i) % (vocab - lo));
}

void workload_ids(const struct workload *w, const struct bench_request *r,
		  u32 vocab, u32 *out)
{
	u32 k, i;

	for (k = 0; k < r->nr; k++) {
		const struct bench_piece *p = &w->pieces[r->first + k];

		for (i = 0; i < p->nr; i++)
			*out++ = token_id(p, i, vocab);
	}
}

/* Add "," and a number: prompts are long, and printf() is slow. */
static void add_number(struct text *t, u32 v)
{
	char buf[12];
	size_t at = sizeof(buf);

	do {
		buf[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	buf[--at] = ',';
	text_add(t, buf + at, sizeof(buf) - at);
}

void workload_json_ids(const struct workload *w, const struct bench_request *r,
		       u32 vocab, struct text *t)
{
	const size_t from = t->len;
	u32 k, i;

	for (k = 0; k < r->nr; k++) {
		const struct bench_piece *p = &w->pieces[r->first + k];

		for (i = 0; i < p->nr; i++)
			add_number(t, token_id(p, i, vocab));
	}
	if (t->failed)
		return;
	t->p[from] = '[';	/* in place of the first comma */
	text_puts(t, "]");
}

void workload_json_text(const struct workload *w,
			const struct bench_request *r, struct text *t)
{
	const char *word;
	u32 k, i;

	text_puts(t, "\"");
	for (k = 0; k < r->nr; k++) {
		const struct bench_piece *p = &w->pieces[r->first + k];

		for (i = 0; i < p->nr; i++) {
			word = words[token_hash(p, i) % ARRAY_SIZE(words)];
			if (k || i)
				text_add(t, " ", 1);
			text_puts(t, word);
		}
	}
	text_puts(t, "\"");
}
