// SPDX-License-Identifier: Apache-2.0
/*
 * bounds.c - how many files may be open, how many lines clients may cause in the log
 */
#include <sys/resource.h>

#include <kvmm/log.h>

#include "kvmm/ipc/base/base.h"

#define LOG_BURST	20	/* lines about faults of clients */
#define LOG_LIFE_BURST	80	/* lines about clients that come and go */

/**
 * files_raise() - raise the limit on open files
 * @need: files; the soft limit becomes the hard one where that is more
 *
 * Also the hard limit is raised, where this process may do that.
 * Return: files that may be open now, 0 with errno set when that is unknown.
 */
u64 files_raise(u64 need)
{
	struct rlimit r, want;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return 0;
	if (r.rlim_cur >= need && r.rlim_cur >= r.rlim_max)
		return r.rlim_cur;
	want.rlim_cur = max((u64)r.rlim_max, need);
	want.rlim_max = want.rlim_cur;
	if (!setrlimit(RLIMIT_NOFILE, &want))
		return want.rlim_cur;
	r.rlim_cur = r.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &r) ? 0 : r.rlim_cur;
}

/* log_allowed() - may a line be written now that a client causes? */
bool log_allowed(void)
{
	static struct kv_log_budget faults;

	return kv_log_spend(&faults, LOG_BURST, "clients");
}

/* log_life_allowed() - may a line be written about a client that comes or goes? */
bool log_life_allowed(void)
{
	static struct kv_log_budget life;

	return kv_log_spend(&life, LOG_LIFE_BURST, "clients");
}
