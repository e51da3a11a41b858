// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - kvmm, the memory manager of an LLM node
 *
 * The daemon owns the pool.  Clients attach on a Unix socket, then talk to it
 * through rings in shared memory; operators read files over a second socket.
 *
 * This program is a shell around a machine.  The machine (kvmm/core) holds
 * all state of memory and makes every decision; it knows no clock, no system
 * call and no thread.  The shell (kvmm/ipc) reports events to it and executes
 * its commands:
 *
 *	control thread	this one: sockets, attach, death, files for operators
 *	mm thread	the core and the clients' rings
 *	mapper thread	calls of the device, which may be slow
 *	copier thread	blocks between the device and the host pool
 *	events thread	events of cached blocks, with --kv-events
 *
 * kvmm/ipc/daemon.h says which thread may touch which state.  A client cannot
 * break these rules: it cannot stop a thread, it cannot make the daemon read a
 * word twice, it cannot keep memory that another tenant is given, and when it
 * ends, in any way, no memory of it is left.
 *
 * Start is strict: each error that can be found is found before the first
 * socket exists, with one line that names the reason and the remedy, and an
 * exit code of its own.  The end is clean: clients are told, sockets and lock
 * are unlinked.  Started by kvmm-hold, lock and sockets outlive a crash.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define LOG_KEPT	256u	/* lines of the log, for kmsg */

static const struct kv_program program = {
	.name		= "kvmm",
	.brief		= "memory manager of an LLM node",
	.man		= 8,
	.operands	= KVMM_OPERANDS,
	.about		= "Owns the KV memory of this node and serves it to the runtimes that attach. Usually started by kvmm-hold, which takes the same options and starts it again when it dies.",
	.opts		= kvmm_opts,
	.nr_opts	= KVMM_NR_OPTS,
	.exits		= kvmm_exits,
	.nr_exits	= KVMM_NR_EXITS,
	.more		= kvmm_keys_help,
	.file		= kvmm_config_file,
};

/* ---- start ---- */

static int refuse_start(const char *what, int err, int code)
{
	pr_err("%s: %s", what, strerror(-err));
	return code;
}

/* The device, and its default sizes.  Return: exit code. */
static int start_device(struct daemon *d, char *why, size_t len)
{
	struct kvmm_options *o = &d->setup.opt;

	d->setup.dev.ops = dev_select(o->backend, why, len);
	if (!d->setup.dev.ops) {
		pr_err("%s", why);
		return EX_UNAVAILABLE;
	}
	if (!o->extent_size)
		o->extent_size = d->setup.dev.ops->extent_size;
	if (o->pool_size.unit == KV_AMOUNT_UNSET)
		o->pool_size = d->setup.dev.ops->pool_size;
	return d->setup.dev.ops->open && d->setup.dev.ops->open(&d->setup.dev) ?
	       EX_UNAVAILABLE : 0;
}

/* Judge the options against this machine.  Return: exit code. */
static int start_checks(struct daemon *d)
{
	char why[512];
	int err;

	if (socket_mode(&d->sockets) || config_options(&d->setup) || events_options(&d->events))
		return EX_USAGE;
	err = door_options(&d->sockets);
	if (!err)
		err = domains_options(&d->clients);
	if (!err)
		err = rights_options(&d->sockets);
	if (err)
		return err == -ENOMEM ? EX_OSERR : EX_USAGE;
	if (deposit_init(&d->deposit))
		return EX_OSERR;
	err = start_device(d, why, sizeof(why));
	if (err)
		return err;
	if (hostpool_numa_check(&d->setup.host_numa) || limits_sizes(&d->setup, &d->deposit) ||
	    config_check(&d->setup))
		return EX_CONFIG;
	config_fill(&d->setup, d->sockets.nr_doors);
	if (!d->setup.arena_bytes) {
		pr_err("more blocks than records can number: give a larger --min-token-bytes (now %u), or a smaller --pool-size, --host-size or --area-max",
		       d->setup.cfg.min_token_bytes);
		return EX_CONFIG;
	}
	err = control_init(d);
	if (err)
		return refuse_start("the control thread cannot be set up", err,
				    EX_OSERR);
	err = segment_guard_init();
	if (err)
		return refuse_start("SIGBUS cannot be caught", err, EX_OSERR);
	if (socket_paths(&d->sockets) || door_paths(&d->sockets))
		return EX_CANTCREAT;
	err = socket_lock(&d->sockets);
	if (err)
		return err == -EWOULDBLOCK ? EX_UNAVAILABLE : EX_CANTCREAT;

	pr_info("%s", why);
	if (limits_files(&d->setup, d->sockets.nr_doors,
			 &d->clients.send_batch))
		return EX_OSERR;
	if (d->setup.dev.ops->reserve &&
	    d->setup.dev.ops->reserve(&d->setup.dev, d->setup.cfg.pool_bytes))
		return EX_OSERR;
	adopt_start(&d->adoption);
	d->setup.dev.epoch = d->setup.epoch;
	/* Adopted memory is there already. */
	if (d->setup.adopted < 0 && limits_memory(&d->setup, &d->deposit))
		return EX_CONFIG;
	return 0;
}

/* The copier, the host pool and the requests to swapd. */
static int start_tiers(struct daemon *d)
{
	int err = copier_init(&d->copier);

	if (!err && d->setup.cfg.host_bytes && d->setup.dev.ops->host_open)
		err = d->setup.dev.ops->host_open(&d->setup.dev, d->setup.host.base,
						  d->setup.host.bytes);
	if (!err && d->setup.cfg.host_bytes && d->setup.cfg.area_bytes)
		err = swap_init(&d->swap, d->mm.epoll, &d->link.shm);
	return err;
}

/*
 * Errors have been logged.  Return: exit code; -1 when a signal came meanwhile,
 * which is a clean end.
 */
static int start_hostpool(struct daemon *d)
{
	const struct hostpool_ask ask = {
		.bytes	= d->setup.cfg.host_bytes,
		.epoch	= d->setup.epoch,
		.near	= d->setup.dev.ops->node(&d->setup.dev),
		.numa	= d->setup.host_numa,
		.stop	= d->signals.fd,
		.again	= d->deposit.last_epoch != 0,
	};
	int err;

	if (!ask.bytes || d->setup.adopted >= 0)
		return 0;
	err = hostpool_create(&d->setup.host, &ask);
	if (!err && deposit_wanted(&d->deposit)) {
		d->deposit.keep->huge = d->setup.host.huge;
		deposit_put(&d->deposit, HOLD_HOST, 0, d->setup.host.fd, 0);
	}
	if (err != -ECANCELED)
		return err ? EX_OSERR : 0;
	pr_info("shutting down before the host pool is filled");
	return -1;
}

/* ---- rights ---- */

/* The user that the daemon becomes, before any name is made.  Return: exit code. */
static int start_box(struct daemon *d)
{
	const bool held = getenv(HOLD_ENV);
	int err;

	/* Prepared before there are threads, and a driver starts some. */
	d->box.who = SANDBOX_kvmm | (dev_has_driver(d->setup.opt.backend) ?
				     SANDBOX_cuda : 0) |
		     (d->setup.opt.kv_events ? SANDBOX_events : 0);
	d->box.mode = d->setup.opt.sandbox;
	d->box.user = d->setup.opt.user;
	/* Without hold it removes its sockets itself, so it stays the same user. */
	d->box.dflt = held ? "kvmm" : NULL;
	if (!held && d->setup.opt.user) {
		pr_err("--user needs kvmm-hold, which removes what another user made: start that");
		return EX_USAGE;
	}
	err = sandbox_prepare(&d->box);
	return err == -EINVAL ? EX_USAGE : err ? EX_OSERR : 0;
}

/* From here on no name can be made, and only those of the sockets be removed. */
static int drop_rights(struct daemon *d)
{
	char *dir = d->unlink_dir, *slash;

	strcpy(dir, d->sockets.attach_addr.sun_path);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	else
		strcpy(dir, ".");
	d->box.unlinks = dir;
	d->box.devices = d->setup.dev.ops == &cuda_dev_ops;
	return sandbox_drop(&d->box) ? EX_OSERR : 0;
}

static int start_threads(struct daemon *d)
{
	int err = closer_start(&d->sockets);

	/* The mapper sends its records itself: none may wait before them. */
	deposit_late_flush(&d->deposit);
	if (!err)
		err = mapper_start(&d->mapper);
	if (!err)
		err = copier_start(&d->copier);
	if (!err)
		err = events_start(&d->events);
	if (!err)
		err = mm_start(&d->mm);
	if (!err)
		err = control_hear_hold(d);
	if (!err)
		link_start(&d->link);
	return err;
}

/* Threads, files, sockets.  Return: exit code, -1 as start_hostpool(). */
static int start_serving(struct daemon *d)
{
	const struct acceptors acceptors = {
		.attach	= { .fn = client_accept, .arg = &d->clients },
		.view	= { .fn = view_accept, .arg = &d->views },
		.admin	= { .fn = admin_accept, .arg = &d->operators },
	};
	int err = d->deposit.keep ? 0 : keep_make(&d->deposit), code;

	if (!err)
		err = core_make(&d->adoption);
	if (err == -EINVAL)
		return refuse_start("the core refuses the sizes given", err,
				    EX_CONFIG);
	if (!err)
		err = mm_init(&d->mm);
	if (!err)
		err = mapper_init(&d->mapper);
	if (!err)
		err = events_init(&d->events);
	if (!err) {
		adopt_extents(&d->adoption);
		code = start_hostpool(d);
		if (code)
			return code;
		err = start_tiers(d);
	}
	if (!err)
		err = adopt_clients(&d->adoption);
	if (err == -EFBIG)
		return refuse_start("the daemon's tables, which the next one may go on with, are a file in memory: raise the limit on files (ulimit -f), or start with --adopt off",
				    err, EX_OSERR);
	if (err)
		return refuse_start("no memory for the daemon's tables", err,
				    EX_OSERR);
	if (socket_make(&d->sockets) || events_listen(&d->events))
		return EX_CANTCREAT;
	code = drop_rights(d);
	if (code)
		return code;
	err = start_threads(d);
	if (err)
		return refuse_start("a thread cannot be started", err,
				    EX_OSERR);
	err = source_start(d);
	if (err)
		return refuse_start("the files for operators cannot be made",
				    err, EX_SOFTWARE);
	if (sandbox_filter(&d->box))
		return EX_OSERR;
	adopt_tell(&d->adoption);
	/* From here on hold refuses records that only a start may put. */
	deposit_put(&d->deposit, HOLD_SERVES, 0, -1, 0);
	if (socket_listen(&d->sockets, &acceptors))
		return EX_CANTCREAT;
	d->deposit.keep->ready = 1;
	deposit_put(&d->deposit, HOLD_READY, 0, -1, 0);
	return 0;
}

/* A line for each of several device pools. */
static void log_pools(const struct setup *s)
{
	char size[32];
	u32 i;

	for (i = 0; i < s->nr_pools && s->nr_pools > 1; i++) {
		const u64 bytes = setup_pool_bytes(s, i);

		pr_info("pool gpu%u: %s on %s, %" PRIu64 " extent%s", i,
			kv_format_size(bytes, size, sizeof(size)), s->dev.ops->name,
			bytes / s->cfg.extent_size, bytes == s->cfg.extent_size ? "" : "s");
	}
}

static void log_ready(const struct daemon *d)
{
	char pool[32], ext[32], records[32];

	log_pools(&d->setup);
	pr_info("%s %s on %s, %u extent%s of %s, %s of records, epoch %" PRIx64,
		d->setup.nr_pools > 1 ? "pools of" : "pool",
		kv_format_size(d->setup.cfg.pool_bytes, pool, sizeof(pool)),
		d->setup.dev.ops->name, d->setup.nr_extents,
		d->setup.nr_extents == 1 ? "" : "s",
		kv_format_size(d->setup.cfg.extent_size, ext, sizeof(ext)),
		kv_format_size(ALIGN_UP(limits_records(&d->setup), 1ull << 20),
			       records, sizeof(records)), d->setup.epoch);
	rights_tell(&d->sockets);
	pr_info("ready: %s", d->sockets.attach_addr.sun_path);
}

/* ---- end ---- */

/* Another program takes over: end between two events, and leave everything. */
static void __noreturn leave(struct daemon *d)
{
	mm_stop(&d->mm);
	/* This end does not count as a death. */
	d->deposit.keep->tries = 0;
	deposit_late_flush(&d->deposit);
	/* A call that hangs in the kernel ends with this process. */
	(void)!mapper_stop(&d->mapper);
	(void)!copier_stop(&d->copier);
	_exit(HOLD_EXIT_UPGRADE);
}

static void stop_all(struct daemon *d, int code)
{
	mm_shutdown(&d->mm);
	socket_close(&d->sockets);
	view_exit_all(&d->views);
	admin_exit_all(&d->operators);
	mm_stop(&d->mm);
	events_stop(&d->events);
	if (!mapper_stop(&d->mapper) || !copier_stop(&d->copier)) {
		pr_warn("a device call does not come back: ended without it");
		_exit(code);
	}
	clients_exit(&d->clients);
	closer_stop(&d->sockets);
	proc_destroy(d->views.proc);
	link_stop(&d->link);
	/* Its descriptor is the deposit's. */
	d->hold_watch.fd = -1;
	deposit_exit(&d->deposit);
	copier_exit(&d->copier);
	swap_exit(&d->swap);
	mapper_exit(&d->mapper);
	events_exit(&d->events);
	mm_exit(&d->mm);
	if (d->setup.dev.ops && d->setup.dev.ops->close)
		d->setup.dev.ops->close(&d->setup.dev);
	hostpool_destroy(&d->setup.host);
	keep_exit(&d->deposit);
	control_exit(d);
	door_exit(&d->sockets);
}

/* ---- options ---- */

/*
 * Judge the options as the start does, but for the memory that is available
 * now; auto is any size.  Return: exit code.
 */
static int judge_config(struct daemon *d)
{
	struct kvmm_options *o = &d->setup.opt;
	struct kv_amount extent;
	char why[512];
	int err;

	if (socket_mode(&d->sockets) || config_options(&d->setup) ||
	    door_options(&d->sockets) || domains_options(&d->clients) ||
	    rights_options(&d->sockets) || events_options(&d->events))
		return EX_USAGE;
	err = start_device(d, why, sizeof(why));
	if (err)
		return err;
	extent = (struct kv_amount){ KV_AMOUNT_BYTES, o->extent_size };
	if (o->pool_size.unit == KV_AMOUNT_AUTO)
		o->pool_size = extent;
	if (o->host_size.unit == KV_AMOUNT_AUTO ||
	    o->host_size.unit == KV_AMOUNT_UNSET)
		o->host_size = extent;
	return limits_sizes(&d->setup, &d->deposit) || config_check(&d->setup) ? EX_CONFIG : 0;
}

static int check_config(struct daemon *d, const struct kvmm_config *config)
{
	int code;

	kv_config_print(&config->file, stdout);
	if (fflush(stdout))
		return EX_OSERR;
	code = judge_config(d);
	if (d->setup.dev.ops && d->setup.dev.ops->close)
		d->setup.dev.ops->close(&d->setup.dev);
	door_exit(&d->sockets);
	return code;
}

/* Return: exit code; -1: go on. */
static int read_options(struct daemon *d, int argc, char **argv)
{
	static struct kvmm_config config;
	char text[512];
	int err;

	kvmm_config_init(&config, &d->setup.opt);
	err = kvmm_config_read(&program, &config, getenv(HOLD_ENV), argc, argv,
			       text, sizeof(text));
	if (!err && kv_fault_env(text, sizeof(text)))
		err = -EINVAL;
	if (err == -ECANCELED)
		return 0;
	if (err) {
		pr_err("%s", text);
		return err == -EBADMSG ? EX_CONFIG : EX_USAGE;
	}
	kvmm_config_path(&config, getenv(HOLD_ENV), d->config, sizeof(d->config));
	kv_log_init("kvmm", (enum kv_log_level)d->setup.opt.log_level);
	if (d->setup.opt.arena_layout) {
		printf("arena %016" PRIx64 "\n", keep_layout());
		return fflush(stdout) ? EX_OSERR : 0;
	}
	if (d->setup.opt.check_config)
		return check_config(d, &config);
	kv_log_format((enum kv_log_format)d->setup.opt.log_format);
	if (config.file.path[0])
		pr_info("options: %s", config.file.path);
	return -1;
}

int main(int argc, char **argv)
{
	struct daemon *d = daemon_alloc();
	int code;

	kv_log_init("kvmm", KV_LOG_INFO);
	kv_log_never_wait();
	if (kv_log_keep(LOG_KEPT))
		pr_warn("no memory to keep lines of the log: kmsg will be empty");
	if (!d)
		return refuse_start("no memory", -ENOMEM, EX_OSERR);
	code = read_options(d, argc, argv);
	if (code >= 0) {
		free(d);
		return code;
	}
	/* A program started by its descriptor has the number for a name. */
	prctl(PR_SET_NAME, "kvmm");
	umask(0077);

	code = start_box(d);
	if (!code)
		code = start_checks(d);
	if (!code)
		code = start_serving(d);
	if (!code) {
		log_ready(d);
		control_run(d);
	}
	if (d->operators.upgrade.granted)
		leave(d);
	code = max(code, 0);
	stop_all(d, code);
	free(d);
	return code;
}
