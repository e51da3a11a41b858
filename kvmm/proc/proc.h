/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - the files that show an operator the daemon's state, and reasons for it
 *
 * Text is made here, on the control thread.  kvctl over the view socket, a
 * mounted file system or a snapshot on disk carries it.  A request is one line,
 * an answer is text or an errno.
 *
 *   cat PATH	the text of a file
 *   ls [PATH]	names, one a line, directories with a slash at the end
 *   stat [PATH] st_mode of a directory or file, in octal
 *   check	runs the walkers: `ok`, or the number of faults and the first
 *
 * A tenant sees less (proc_request_as()): its own domains, clients, sequences and
 * extents, and no figure that depends on other tenants.  It may not run the
 * walkers.
 *
 * On a stream socket the request ends with a newline and the answer begins
 * with a line made by proc_answer_head(): `ok BYTES`, followed by that many
 * bytes, or `error ERRNO TEXT`.  Then the daemon closes.
 *
 * Context: everything here runs on the control thread, one request at a time.
 */
#ifndef KVMM_PROC_PROC_H
#define KVMM_PROC_PROC_H

#include <kvmm/domain_opt.h>
#include <kvmm/seq.h>
#include <kvmm/swapd.h>
#include <kvmm/types.h>

#include "kvmm/core/core.h"
#include "kvmm/dev/hostpool.h"

#define PROC_REQ_MAX		4096	/* bytes of a request, newline included */
#define PROC_HEAD_MAX		512	/* bytes of the first line of an answer */
#define PROC_TEXT_MAX		(64u << 20)	/* bytes of one file */

/* Facts about a client that the daemon around the core knows, and the core does not */
struct proc_client_info {
	pid_t	pid;
	uid_t	uid;
	char	comm[16];	/* NUL-terminated */
};

#define PROC_ALL	(~0ull)		/* no tenant has this key: all tenants */

/**
 * struct proc_tenant_info - a tenant, as the daemon around the core knows it
 * @name:    name for people
 * @socket:  path where its clients attach; lives as long as the source
 * @conns:   connections, of clients and others
 * @fds:     descriptors sent and not acknowledged
 * @refused: requests refused by one of its quotas
 */
struct proc_tenant_info {
	char		name[48];
	const char	*socket;
	u32		clients;
	u32		conns;
	u32		fds;
	u32		max_clients;
	u32		max_conns;
	u32		max_domains;
	u32		max_fds;
	u32		max_weight;
	u64		max_min;
	u64		refused;
};

/**
 * struct proc_swap_area - a swap area, as the daemon around the core knows it
 * @path:   path that the operator gave; lives until the next request
 * @device: a block device
 * @lost:   swapd no longer uses the area, or its disk failed too often
 * @leaves: an operator takes the area away
 * @deleted: its file has no name any more
 * @index:  number of the area at swapd
 * @asked:  size that the file was to have; 0: a block device
 */
struct proc_swap_area {
	const char	*path;
	bool		device;
	bool		lost;
	bool		leaves;
	bool		deleted;
	u32		index;
	u64		asked;
};

/* Limits that the options give a domain of the tenant @key. */
struct proc_limits {
	u64			key;
	struct domain_opt	opt;
};

/* Counters of the requests to swapd; they only rise. */
#define PROC_SWAP_COUNTERS(x)						\
	x(deaths,	"times that a swapd ended")			\
	x(orphans,	"requests that a dead swapd left unfinished")	\
	x(orphans_done,	"of these, writes that the kernel finished")	\
	x(again,	"of these, given to the next swapd")		\
	x(given_up,	"requests failed: no swapd, no area, or too many deaths") \
	x(strays,	"completions of no open request")

/*
 * Counters of the copier, whether there are areas or not.  Its nanoseconds divided
 * by those of the clock are the part of the time that it was busy.
 */
#define PROC_COPIER_COUNTERS(x)						\
	x(copy_out_bytes, "bytes copied from the device to the host pool") \
	x(copy_out_ns,	"nanoseconds that the copier took for them")	\
	x(copy_in_bytes, "bytes copied from the host pool to the device") \
	x(copy_in_ns,	"nanoseconds that the copier took for them")	\
	x(copy_move_bytes, "bytes copied inside the device")		\
	x(copy_move_ns,	"nanoseconds that the copier took for them")

/* The daemon's counters of each area; they only rise. */
#define PROC_AREA_COUNTERS(x)						\
	x(busy_ns,	"nanoseconds with at least one request unfinished")

/* Numbers about swapd that rise and fall. */
#define PROC_SWAP_NOW(x)						\
	x(pid,		"process of swapd, 0: none runs")		\
	x(generation,	"which start of swapd it is")			\
	x(nr_open,	"requests that a swapd has or had")		\
	x(nr_orphans,	"of these, requests of a dead swapd that may still run") \
	x(nr_backlog,	"requests that wait to be given to swapd")

/**
 * struct proc_swap_info - the link to swapd
 * @engine: one word for swapd's way to transfer; NULL: no swapd runs
 * @shell: the daemon's counters of an area, by swapd's index
 * @swapd: swapd's counters, by enum swapd_counter
 * @area:  swapd's counters of an area, by swapd's index and enum swapd_area_counter
 */
struct proc_swap_info {
#define x(name, text) u64 name;
	PROC_SWAP_NOW(x)
	PROC_SWAP_COUNTERS(x)
	PROC_COPIER_COUNTERS(x)
#undef x
	struct {
#define x(name, text) u64 name;
		PROC_AREA_COUNTERS(x)
#undef x
	} shell[CORE_MAX_AREAS];
	const char	*engine;
	u64	swapd[NR_SWAPD_COUNTERS];
	u64	area[CORE_MAX_AREAS][NR_SWAPD_AREA_COUNTERS];
};

/**
 * struct proc_source - sources of the files
 * @call:         runs @fn on the thread that owns the core, between two of its
 *                requests, and waits until it has returned; 0, or -errno when
 *                the core cannot be asked and @fn did not run.  @fn must be
 *                short: it copies, it never formats
 * @client_info:  fills @info for an attached client; 0 or -ENOENT.  Called on
 *                the control thread.  NULL: no client is known
 * @tenant_info:  fills @info for a tenant's key; 0 or -ENOENT.  As above
 * @swap_area:    fills @info for area @i of the core; 0 or -ENOENT.  As above
 * @swap_info:    fills @info; 0, or -ENOENT when there is no swap.  As above
 * @limits:       fills @info for --domain @i; 0, -ENOENT, or -ERANGE past the last.
 *                As above.  NULL: there is none
 * @now:          CLOCK_MONOTONIC in nanoseconds; NULL: the system's clock
 * @idle_ns:      time that the thread of the core has spent asleep; NULL: 0
 * @arg:          first argument of all of these
 * @host:         kinds of pages of the host pool; NULL: there is none
 * @backend:      "host" or "cuda"
 * @socket:       path of the attach socket
 * @config:       path of the file of options; NULL: none
 * @own_key:      key of the user who started the daemon
 * @start_ns:     CLOCK_MONOTONIC when the daemon started
 * @daemon_epoch: epoch that clients are told
 * @start:        how the daemon started; NULL: cold
 *
 * The strings live as long as the struct proc.
 */
struct proc_source {
	int		(*call)(void *arg,
				void (*fn)(struct core *core, void *fn_arg),
				void *fn_arg);
	int		(*client_info)(void *arg, u32 client,
				       struct proc_client_info *info);
	int		(*tenant_info)(void *arg, u64 key,
				       struct proc_tenant_info *info);
	int		(*swap_area)(void *arg, u32 i,
				     struct proc_swap_area *info);
	int		(*swap_info)(void *arg, struct proc_swap_info *info);
	int		(*limits)(void *arg, u32 i, struct proc_limits *info);
	u64		(*now)(void *arg);
	u64		(*idle_ns)(void *arg);
	void		*arg;
	const struct hostpool_found *host;
	const char	*backend;
	const char	*socket;
	const char	*config;
	u64		own_key;
	u64		start_ns;
	u64		daemon_epoch;
	const char	*start;
};

struct proc;

/**
 * proc_create() - make the files of one daemon
 * @src: copied.  @src->call must work already: proc_create() asks for the core's
 *       configuration, which sizes every buffer
 *
 * Return: the files, or NULL with errno set.
 */
struct proc *proc_create(const struct proc_source *src);

/* proc_destroy() - free the result of proc_create(); NULL is allowed. */
void proc_destroy(struct proc *proc);

/**
 * proc_request() - answer one request
 * @proc: result of proc_create()
 * @req:  @len bytes, not NUL-terminated; a newline at the end is allowed.
 *        May hold any bytes: it comes from outside
 * @len:  bytes
 * @out:  made by seq_init(); its old text is dropped.  On success it takes the
 *        text, on failure one line without newline that names the path or fault
 *
 * Return: 0; -ENOENT, -EISDIR, -ENOTDIR for paths, -ENAMETOOLONG, -EINVAL
 * for a malformed request, -EOVERFLOW when the text is longer than @out
 * allows, -ENOMEM, or an error of @call.
 */
int __must_check proc_request(struct proc *proc, const char *req, size_t len,
			      struct seq_file *out);

/**
 * proc_request_as() - answer one request of a tenant
 * @key: key of the tenant; PROC_ALL: as proc_request()
 *
 * Return: as proc_request(), and -EPERM for a request that no tenant may make.
 */
int __must_check proc_request_as(struct proc *proc, u64 key, const char *req,
				 size_t len, struct seq_file *out);

/**
 * proc_find_domain() - find a domain by the name that is shown for it
 * @name: as in paths: escaped, with the id behind an @ where two domains share it
 * @v:    takes a copy
 *
 * No two domains are shown by the same name, even if clients gave them one.
 *
 * Return: 0, -ENOENT, or an error of @call.
 */
int __must_check proc_find_domain(struct proc *proc, const char *name,
				  struct core_domain_view *v);

/**
 * struct proc_trigger - a line written to a pressure file, parsed
 * @of_domain: the trigger is for @domain, a copy as it was shown; else for the node
 * @res:       CORE_PSI_MEMORY, _IO or _CPU
 * @full:      `full`; else `some`
 * @threshold_ns: stall that fires it, within
 * @window_ns: this time; the bounds of both are not checked yet
 */
struct proc_trigger {
	bool			of_domain;
	struct core_domain_view	domain;
	u32			res;
	bool			full;
	u64			threshold_ns;
	u64			window_ns;
};

/**
 * proc_trigger_parse() - parse a line written to a pressure file
 * @key:  the tenant that asks, as for proc_request_as(): it may not watch a file
 *        that it may not read
 * @path: path of the pressure file
 * @text: `some THRESHOLD WINDOW` or `full THRESHOLD WINDOW`, in microseconds
 *
 * Return: 0; -EINVAL for the text; -ENOENT; -EISDIR; -EOPNOTSUPP: a file that
 * takes no triggers; or an error of @call.
 */
int __must_check proc_trigger_parse(struct proc *proc, u64 key,
				    const char *path, const char *text,
				    struct proc_trigger *t);

/**
 * proc_answer_head() - the first line of an answer on a stream
 * @err:  result of proc_request()
 * @out:  its text; the bytes follow an `ok` line, but not an `error` line
 * @head: PROC_HEAD_MAX bytes; NUL-terminated
 *
 * Return: bytes of the line, its newline included.
 */
size_t proc_answer_head(int err, const struct seq_file *out,
			char head[PROC_HEAD_MAX]);

/**
 * struct proc_entry - one file of the tree, as documentation needs it
 * @path: components in capitals stand for names: NAME for a domain, ID for a
 *        client, SEQ for a sequence of that client
 * @mode: permission bits
 * @text: one line that describes the file
 */
struct proc_entry {
	const char	*path;
	u32		mode;
	const char	*text;
};

/* proc_get_entry() - file number @i; false behind the last one. */
bool proc_get_entry(u32 i, struct proc_entry *entry);

#endif /* KVMM_PROC_PROC_H */
