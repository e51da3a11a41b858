// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_sample.c - take a sample of the daemon's files
 *
 * Files are read one after the other, one connection for each, and only those that
 * the view in front needs: kvtop never has two connections at once.  The first file
 * shows whether the socket is a tenant's.  A tenant's socket has no files of the
 * node, so these are not asked for.  A connection that fails ends the sample, so a
 * stopped daemon costs one timeout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kvmm/clock.h>

#include "kvmm/tools/ask.h"
#include "kvmm/tools/kvtop.h"

#define TEXT_MAX	((size_t)16 << 20)	/* bytes of one file */

static const struct {
	const char	*path;
	bool		table;
} files[] = {
#define x(name, path, table) { path, table },
	KVTOP_FILES(x)
#undef x
};

struct sample *sample_new(void)
{
	struct sample *s = calloc(1, sizeof(*s));
	u32 i;

	for (i = 0; s && i < NR_FILES; i++)
		seq_init(&s->text[i], TEXT_MAX);
	return s;
}

void sample_free(struct sample *s)
{
	u32 i;

	if (!s)
		return;
	for (i = 0; i < NR_FILES; i++) {
		seq_free(&s->text[i]);
		ktable_free(&s->table[i]);
	}
	free(s);
}

/* Describe the error, and the remedy. */
static void explain(struct sample *s, const char *path, int err)
{
	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENOTDIR:
		snprintf(s->why, sizeof(s->why),
			 "no daemon is at %s: start kvmm-hold, or name its directory with --socket",
			 path);
		break;
	case -EACCES:
	case -EPERM:
		tool_refused(path, false, s->why, sizeof(s->why));
		break;
	case -ETIMEDOUT:
		snprintf(s->why, sizeof(s->why), "no answer from %s", path);
		break;
	case -ECONNABORTED:
	case -ECONNRESET:
		snprintf(s->why, sizeof(s->why), "the daemon at %s went away",
			 path);
		break;
	case -EPROTO:
	case -EPROTOTYPE:
	case -EOVERFLOW:
		snprintf(s->why, sizeof(s->why),
			 "%s is no view socket of kvmm, or a file is too long",
			 path);
		break;
	default:
		snprintf(s->why, sizeof(s->why), "%s: %s", path,
			 strerror(-err));
		break;
	}
}

/* Read one file.  Return: 0 also when the daemon refuses the file. */
static int take_file(struct sample *s, const char *path, u32 timeout_ms, u32 i)
{
	char req[80];
	int status, err, n;

	n = snprintf(req, sizeof(req), "cat ");
	snprintf(req + n, sizeof(req) - (size_t)n, files[i].path, s->client);
	err = kv_view_ask(path, req, timeout_ms, &status, &s->text[i]);
	if (err)
		return err;
	if (status == EACCES) {
		/* This user may ask nothing here; the daemon says why. */
		snprintf(s->why, sizeof(s->why), "%.200s", seq_text(&s->text[i]));
		return -EACCES;
	}
	if (status) {
		seq_reset(&s->text[i]);
		s->missing |= BIT(i);
		return 0;
	}
	return files[i].table ?
	       ktable_parse(&s->table[i], seq_text(&s->text[i])) : 0;
}

void sample_take(struct sample *s, const char *path, u32 timeout_ms, u32 want,
		 u32 client)
{
	u64 begin = kv_now_ns();
	u32 i;

	s->client = client;
	s->when = begin;
	for (i = 0; i < NR_FILES; i++) {
		if (!(want & BIT(i)) ||
		    (s->tenant && !(FILES_TENANT & BIT(i))))
			continue;
		s->asked |= BIT(i);
		s->err = take_file(s, path, timeout_ms, i);
		if (s->err)
			break;
		if (i == FILE_vmstat)
			s->when = kv_now_ns();
		if (i == FILE_status &&
		    keyed_get(seq_text(&s->text[i]), "Tenant")) {
			s->tenant = true;
			want |= BIT(FILE_tenants);
		}
	}
	if (s->err && !*s->why)
		explain(s, path, s->err);
	s->took = kv_now_ns() - begin;
}

u64 sample_kb(const struct sample *s, const char *key)
{
	u64 v;

	return keyed_num(seq_text(&s->text[FILE_meminfo]), key, &v) ? v : 0;
}

u64 sample_used_kb(const struct sample *s)
{
	return sample_kb(s, "Open") + sample_kb(s, "Sealed") +
	       sample_kb(s, "Quiescing") + sample_kb(s, "Quarantine") +
	       sample_kb(s, "Limbo");
}

bool sample_has_pools(const struct sample *s)
{
	const struct ktable *t = &s->table[FILE_domains];
	const char *pool;
	u32 i;

	if (!s->tenant)
		return s->table[FILE_pools].nr_rows > 1;
	for (i = 0; i < t->nr_rows; i++) {
		pool = ktable_get(t, i, "pool");
		if (pool && strcmp(pool, "gpu0"))
			return true;
	}
	return false;
}

/* Are both samples of the same start of a daemon?  Counters begin at 0 then. */
static bool same_daemon(const struct sample *a, const struct sample *b)
{
	const char *x = keyed_get(seq_text(&a->text[FILE_status]), "Epoch");
	const char *y = keyed_get(seq_text(&b->text[FILE_status]), "Epoch");

	return x && y && strcspn(x, "\n") == strcspn(y, "\n") &&
	       !strncmp(x, y, strcspn(x, "\n"));
}

double sample_seconds(const struct sample *now, const struct sample *old)
{
	if (!now || !old || now->err || old->err || old->when >= now->when ||
	    !same_daemon(now, old))
		return 0;
	return (double)(now->when - old->when) / 1e9;
}

double sample_rate(const struct sample *now, const struct sample *old,
		   const char *key)
{
	double s = sample_seconds(now, old);
	u64 a, b;

	if (s <= 0 ||
	    !keyed_num(seq_text(&old->text[FILE_vmstat]), key, &a) ||
	    !keyed_num(seq_text(&now->text[FILE_vmstat]), key, &b) || b < a)
		return -1;
	return (double)(b - a) / s;
}
