/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmm_options.h - the daemon's options, once
 *
 * The structure, the parser, --help, the file of options and the manual are
 * made from this list.  kvmm-hold reads the file and the environment, and passes
 * their settings as options to every kvmm that it starts.
 */
#ifndef KVMM_KVMM_OPTIONS_H
#define KVMM_KVMM_OPTIONS_H

#include <sysexits.h>

#include <kvmm/config.h>
#include <kvmm/log.h>
#include <kvmm/opts.h>
#include <kvmm/sandbox.h>
#include <kvmm/swapd_options.h>
#include <kvmm/tunables.h>

/* --proc, in the order of its words. */
enum kvmm_proc_mount {
	KVMM_PROC_AUTO,
	KVMM_PROC_ON,
	KVMM_PROC_OFF,
};

/* --backend, in the order of its words. */
enum kvmm_backend {
	KVMM_BACKEND_AUTO,
	KVMM_BACKEND_HOST,
	KVMM_BACKEND_CUDA,
};
#define KVMM_BACKEND_WORDS	"auto|host|cuda"

#define KVMM_CONFIG_NAME	"kvmm.conf"
#define KVMM_CONFIG_ENV		"KVMM_CONFIG"

#define KVMM_NUMA_NODES	1024	/* memory nodes that --host-numa can name */

#define KVMM_OPTIONS(x)							\
	x(str, config, "config", NULL, 0, 0, "PATH",			\
	  "file of options; none: read no file (default $KVMM_CONFIG, else /etc/kvmm/kvmm.conf for root and $XDG_CONFIG_HOME/kvmm/kvmm.conf or ~/.config/kvmm/kvmm.conf for others, if it is there)") \
	x(flag, check_config, "check-config", NULL, 0, 0, NULL,		\
	  "print the value of every option and the place that sets it, check all of them, and exit; a FILE may follow, instead of --config") \
	x(str, socket, "socket", NULL, 0, 0, "PATH",			\
	  "attach socket, or the directory that gets it; view.sock and admin.sock, for kvctl, lie beside it (default attach.sock in $KVMM_RUNDIR, else in $XDG_RUNTIME_DIR/kvmm, else in /run/kvmm for root and /tmp/kvmm-UID for others)") \
	x(str, socket_mode, "socket-mode", "0600", 0, 0, "MODE",	\
	  "permissions of the socket, in octal; 0666 admits every user as a separate tenant") \
	x(amount, pool_size, "pool-size", NULL, 65536, 1ull << 44, "SIZE", \
	  "memory of the device pool, less than 16T; 25%: of all memory of the device; auto: half of its available memory (default 256M in host memory, auto on a GPU)") \
	x(list, pools, "pool", NULL, 0, 0, "KIND:SIZE",			\
	  "a device pool, in place of --pool-size: host:64M; may be given up to 8 times: the domains of each pool have its memory alone") \
	x(size, extent_size, "extent-size", NULL, 65536, 1ull << 36, "SIZE", \
	  "the unit of memory that moves between domains, a power of two (default 8M in host memory, 64M on a GPU)") \
	x(amount, host_size, "host-size", NULL, 0, 1ull << 44, "SIZE",	\
	  "memory of the pinned host pool, for blocks that the device has no room for; 0: no host pool; 25%: of all memory; auto: half of the memory that the device pool leaves, or all huge pages set aside (default a 16th of the device pool, but at most 1G and a 64th of all memory)") \
	x(str, host_numa, "host-numa", "auto", 0, 0, "auto|local|interleave|NODE", \
	  "memory node of the host pool: the nearest to the device, the one where kvmm starts, all in turn, or this one") \
	x(size, area_max, "area-max", "0", 0, 1ull << 44, "SIZE",	\
	  "most used bytes of one swap area; records for them are made at start; 0: four times --host-size") \
	x(list, areas, "area", NULL, 0, 0, "PATH[,KEY=VALUE]...",	\
	  "a swap area that kvmm-hold opens when kvmm first serves; may be given several times") \
	x(list, domains, "domain", NULL, 0, 0, "[TENANT/]NAME[,KEY=VALUE]...", \
	  "limits of a domain, as kvctl set gives them, also of one that is made later; may be given up to 32 times") \
	KVMM_TUNABLES(x)						\
	x(choice, swap_engine, "swap-engine", "auto", 0, 0, "auto|uring|sync", \
	  "how swapd transfers: io_uring, or threads with pread and pwrite") \
	x(uint, swap_depth, "swap-depth", "64", 1, SWAPD_DEPTH_MAX, "N", \
	  "transfers that swapd has in the kernel at once")		\
	x(uint, swap_deadline_ms, "swap-deadline-ms", "10000", 1, 3600000, "N", \
	  "a sequence that waits longer for a swap area without any answer is recomputed") \
	x(uint, min_token_bytes, "min-token-bytes", "1024", 64, 1 << 24, "N", \
	  "least KV bytes of a token that a model may have, a power of two: at most what kvrt inspect prints of each model; a smaller value needs more block records") \
	x(uint, max_clients, "max-clients", "64", 1, 64, "N",		\
	  "clients attached at once")					\
	x(uint, tenant_clients, "tenant-clients", "32", 1, 64, "N",	\
	  "clients of one tenant attached at once")			\
	x(list, tenants, "tenant", NULL, 0, 0, "NAME[,KEY=VALUE]...",	\
	  "a tenant with its own sockets and quotas, independent of the user; may be given up to 32 times") \
	x(str, user_quota, "user-quota", NULL, 0, 0, "KEY=VALUE,...",	\
	  "quotas of each user that attaches at --socket, as a separate tenant; the daemon's user and root may ask for any min and weight") \
	x(uint, max_tenants, "max-tenants", "16", 1, 4096, "N",		\
	  "users known at once, each a tenant; tenants of --tenant come on top") \
	x(uint, max_domains, "max-domains", "64", 1, 4096, "N",		\
	  "domains known at once")					\
	x(uint, max_seqs, "max-seqs", "1024", 1, 65536, "N",		\
	  "sequences of one client")					\
	x(uint, step_deadline_ms, "step-deadline-ms", "5000", 1, 3600000, "N", \
	  "a client that keeps a step open longer, while a sequence waits for memory, is killed") \
	x(uint, quiet_deadline_ms, "quiet-deadline-ms", "5000", 1, 3600000, "N", \
	  "a client that hung up and lives on is killed after this time")	\
	x(uint, revoke_deadline_ms, "revoke-deadline-ms", "2000", 1, 3600000, "N", \
	  "a client that keeps memory longer that another tenant needs is killed") \
	x(uint, starve_ms, "starve-ms", "2000", 1, 3600000, "N",	\
	  "after this time the sequence that has waited longest may preempt others")	\
	x(choice, adopt, "adopt", "on", 0, 0, "on|off",			\
	  "if kvmm dies, the next one takes over its memory and clients (on), or begins anew (off)") \
	x(uint, resume_ms, "resume-ms", "10000", 1, 3600000, "N",	\
	  "a client of a kvmm that died is killed if it does not resume within this time") \
	x(flag, arena_layout, "arena-layout", NULL, 0, 0, NULL,		\
	  "print the layout number, which must be the same for one kvmm to adopt the memory of another, and exit") \
	x(uint, spin, "spin", "200", 0, 1000000, "N",			\
	  "idle polls of the rings before the daemon sleeps; none on a single CPU") \
	x(choice, backend, "backend", "auto", 0, 0, KVMM_BACKEND_WORDS,	\
	  "place of the pool: host memory, the first GPU that the CUDA driver shows, or (auto) that GPU if it can hold a pool, else host memory") \
	x(str, user, "user", NULL, 0, 0, "USER",			\
	  "user that kvmm changes to when root started it: a name, or UID:GID (default kvmm if there is such a user, else it stays uid 0 without capabilities)") \
	x(str, swapd_user, "swapd-user", NULL, 0, 0, "USER",		\
	  "the same for swapd (default kvmm-swapd)")			\
	x(choice, proc, "proc", "auto", 0, 0, "auto|on|off",		\
	  "mount the files that kvctl cat prints in proc/ beside the sockets, by kvmm-proc; auto: where that is /run/kvmm/proc, or /run/kvmm-N/proc of GPU N") \
	x(str, proc_user, "proc-user", NULL, 0, 0, "USER",		\
	  "the same as --user for kvmm-proc (default kvmm-proc)")	\
	x(str, read_group, "read-group", NULL, 0, 0, "GROUP",		\
	  "group whose members may read all files, with kvctl, kvtop or in proc/: a name or a number; none: no group (default kvmm if root started it)") \
	x(str, admin_group, "admin-group", NULL, 0, 0, "GROUP",		\
	  "group whose members may change values, too, with kvctl (default kvmm-admin if root started it)") \
	x(str, metrics, "metrics", "off", 0, 0, "off|[ADDR:]PORT",	\
	  "where kvmm-proc serves /metrics for Prometheus over HTTP, to every client that can connect: a port of 127.0.0.1, or of this address, [ADDR]:PORT for IPv6") \
	x(str, kv_events, "kv-events", NULL, 0, 0, "ENDPOINT",		\
	  "publish which blocks are cached, for routers: a ZeroMQ endpoint that subscribers connect to, tcp://*:5557 or ipc:///PATH; token ids of all tenants are in it") \
	x(str, kv_events_replay, "kv-events-replay", NULL, 0, 0, "ENDPOINT", \
	  "endpoint where a subscriber asks for batches of --kv-events that it missed") \
	x(str, kv_events_topic, "kv-events-topic", NULL, 0, 0, "TEXT",	\
	  "first frame of each message of --kv-events, by which subscribers choose; {domain} in it stands for the name of the domain (default empty)") \
	x(uint, kv_events_keep, "kv-events-keep", "10000", 1, 1000000, "N", \
	  "batches of --kv-events that are kept for --kv-events-replay, of about 16K at most") \
	x(size, kv_events_ring, "kv-events-ring", "8M", 65536, 1ull << 30, "SIZE", \
	  "memory for changes that are not published yet; when it is full a snapshot follows") \
	x(choice, kv_events_format, "kv-events-format", "map", 0, 0, "map|array", \
	  "form of an event: a map, or an array, as in vLLM before 0.24") \
	x(choice, sandbox, "sandbox", "on", 0, 0, SANDBOX_WORDS,	\
	  "a system call outside the list ends the process (on), or the kernel logs it (log); off: kvmm keeps user, capabilities, files and system calls") \
	x(choice, log_level, "log-level", "info", 0, 0, "err|warn|info|debug", \
	  "level of the messages on stderr")				\
	KV_LOG_FORMAT_OPT(x)

struct kvmm_options {
#define x OPT_FIELD
	KVMM_OPTIONS(x)
#undef x
};

/* Exit codes are those of sysexits.h. */
#define KVMM_EXITS(x)							\
	x(0,		"ended by SIGTERM or SIGINT, or --help, --version") \
	x(EX_USAGE,	"a wrong option")				\
	x(EX_UNAVAILABLE, "another daemon serves this socket, or --backend cuda finds no GPU") \
	x(EX_SOFTWARE,	"the core refused its configuration")		\
	x(EX_OSERR,	"the system refused memory, descriptors or threads") \
	x(EX_CANTCREAT,	"a socket, its directory or its lock cannot be made") \
	x(111,		"replaced by another kvmm (kvctl upgrade), which kvmm-hold starts") \
	x(EX_CONFIG,	"the file of options is wrong, the pool does not fit this machine, or its sizes do not fit each other")

enum {
#define x(...) + 1
	KVMM_NR_OPTS = 0 KVMM_OPTIONS(x),
	KVMM_NR_EXITS = 0 KVMM_EXITS(x),
#undef x
};

extern const struct kv_opt kvmm_opts[KVMM_NR_OPTS];
extern const struct kv_exit kvmm_exits[KVMM_NR_EXITS];

/* Operands of kvmm and kvmm-hold. */
#define KVMM_OPERANDS	"[--check-config [FILE]]"

/* The options of kvmm, and those that its file sets for swapd. */
struct kvmm_config {
	struct kv_config		file;
	struct kv_section		section[2];
	struct kvmm_options		*opt;
	struct swapd_own_options	swapd;
};

/* kvmm_config_init() - set the place that the options are written to */
void kvmm_config_init(struct kvmm_config *c, struct kvmm_options *o);

/**
 * kvmm_config_path() - path of the file of options, absolute, also if it is not there
 * @held: started by kvmm-hold, which says the path in the environment
 *
 * Return: @buf; "none" if no file was wanted.
 */
const char *kvmm_config_path(const struct kvmm_config *c, bool held, char *buf,
			     size_t len);

/* kvmm_config_live() - can kvmm-hold change the option while kvmm runs? */
bool kvmm_config_live(const struct kv_opt *o);

/* kvmm_keys_help() - the keys of lists, for --help of kvmm and kvmm-hold */
void kvmm_keys_help(FILE *out);

/**
 * kvmm_config_read() - read the options of kvmm and kvmm-hold
 * @held: started by kvmm-hold, which has read file and environment
 * @argv: not changed
 * @text: @len bytes for one line that names the fault and the remedy
 *
 * Return: 0, -ECANCELED or -EBADMSG as kv_config_parse(); -EINVAL: the command
 * line is wrong, and nothing else was read; -EDOM: the environment is wrong.
 */
int __must_check kvmm_config_read(const struct kv_program *prog,
				  struct kvmm_config *c, bool held, int argc,
				  char **argv, char *text, size_t len);

/* kvmm_config_file() - a description of the file, without values */
const struct kv_config *kvmm_config_file(void);

#endif /* KVMM_KVMM_OPTIONS_H */
