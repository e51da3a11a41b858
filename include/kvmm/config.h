/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - options from a file and from the environment
 *
 * What a program's table of options names may be said in four places; the
 * first of these that says it counts:
 *
 *	the command line	--pool-size 8G
 *	the environment		KVMM_POOL_SIZE=8G
 *	a file			pool-size = 8G
 *	the table		its default
 *
 * An option that may be given several times is replaced as a whole: of two
 * --tenant and three in the file, the two count.
 *
 * The file has one `key = value` a line, below a `[section]` where a program
 * has several.  A # at the beginning of a line, or behind a blank, begins a
 * comment.  A flag is yes or no.  What is not known, is there twice or has a
 * wrong value is refused with its line, also where somebody else's word counts.
 *
 * Who trusts the file trusts who can write it, so root reads only what root
 * alone could have put there.
 */
#ifndef KVMM_CONFIG_H
#define KVMM_CONFIG_H

#include <kvmm/opts.h>

#define KV_CONFIG_OPTS	96	/* of one table, at most */
#define KV_CONFIG_MAX	65536	/* bytes of a file */
#define KV_CONFIG_NONE	"none"	/* given as a file: read none */

/* Where a value comes from, the last word last. */
enum kv_source {
	KV_FROM_DEFAULT,
	KV_FROM_FILE,
	KV_FROM_ENV,
	KV_FROM_LINE,
};

/**
 * struct kv_origin - who said what an option is
 * @line:  of the file, where that has it, whether or not it counts
 * @words: of a list from the environment, into which it points
 */
struct kv_origin {
	enum kv_source	source;
	u32		line;
	char		*words;
};

/**
 * struct kv_section - one table of options
 * @name:      in the file, "kvmm"
 * @about:     what it is, for the default file
 * @env:       what names in the environment begin with, "KVMM_"
 * @line_only: names, each between blanks, of those that only the command line
 *             gives; may be NULL
 * @opts:      @nr of them
 * @values:    their structure
 * @judge:     what the kind of the option does not know of its value: 0, or
 *             -EINVAL with @text filled, which begins with --NAME; may be NULL
 * @from:      filled in
 */
struct kv_section {
	const char		*name;
	const char		*about;
	const char		*env;
	const char		*line_only;
	const struct kv_opt	*opts;
	u32			nr;
	void			*values;
	int			(*judge)(const struct kv_opt *o, const char *s,
					 char *text, size_t len);
	struct kv_origin	from[KV_CONFIG_OPTS];
};

/**
 * struct kv_config - all that a program takes from one file
 * @name:     of the file, for people
 * @section:  @nr of them; the first is that of the program, and its keys may
 *            stand before any [section]
 * @env_path: variable that names the file
 * @path:     of the file that was read; "": none
 * @text:     of it; values point into it
 */
struct kv_config {
	const char		*name;
	struct kv_section	*section;
	u32			nr;
	const char		*env_path;
	char			path[4096];
	char			*text;
};

/**
 * kv_config_parse() - all four places
 * @prog:  whose options the first section has
 * @cfg:   read, and filled in
 * @asked: path of the file; NULL: $@env_path, else @dflt
 * @dflt:  path of a file that need not be there, or NULL
 * @argv:  as of kv_opts_parse()
 * @text:  @len bytes for one line that names what is wrong and the remedy
 *
 * Values point into memory that is never freed.
 *
 * Return: the number of operands; -ECANCELED as of kv_opts_parse(); -EINVAL:
 * the command line or the environment is wrong; -EBADMSG: the file is, or
 * cannot be read.
 */
int __must_check kv_config_parse(const struct kv_program *prog,
				 struct kv_config *cfg, const char *asked,
				 const char *dflt, int argc, char **argv,
				 char *text, size_t len);

/**
 * kv_config_default_path() - where a file is looked for
 * @name: "kvmm.conf"
 *
 * In /etc/kvmm for root; for others in $XDG_CONFIG_HOME/kvmm, else in
 * $HOME/.config/kvmm.
 *
 * Return: @buf; "" when there is no such place.
 */
const char *kv_config_default_path(const char *name, char *buf, size_t len);

/**
 * kv_config_way() - is all on the way to @path out of the reach of others
 * @text: @len bytes for one line, which names what is not
 *
 * Each directory, and each link, belongs to root or to us, and others may write
 * none that is not as /tmp.
 *
 * Return: 0; -EPERM with @text filled; another negative errno without.
 */
int __must_check kv_config_way(const char *path, char *text, size_t len);

/**
 * kv_config_open() - open a file for reading that only who is trusted may write
 * @path: for root every directory on the way, and each link, must be out of
 *        others' reach
 * @text: @len bytes for one line, which names @path
 *
 * Return: descriptor, or a negative errno with @text filled.
 */
int __must_check kv_config_open(const char *path, char *text, size_t len);

/* kv_config_env_name() - "KVMM_POOL_SIZE" into @buf, which it returns */
char *kv_config_env_name(const struct kv_section *s, const struct kv_opt *o,
			 char *buf, size_t len);

/* kv_config_has() - may a file and the environment say it? */
bool kv_config_has(const struct kv_section *s, const struct kv_opt *o);

/**
 * kv_opt_format() - a value as text that the parser reads
 * @nr:  which one, of a list
 *
 * Return: whether there is one: a str may be NULL, a list shorter.
 */
bool kv_opt_format(const struct kv_opt *o, const void *values, u32 nr,
		   char *buf, size_t len);

/**
 * kv_config_args() - what file and environment said, as options
 * @argv: gets up to @max of them, each "--name=value", never freed
 *
 * Return: how many, or -ENOMEM, -E2BIG.
 */
int __must_check kv_config_args(const struct kv_section *s, char **argv,
				u32 max);

/* kv_config_print() - every value and where it comes from, as a file */
void kv_config_print(const struct kv_config *cfg, FILE *out);

/* kv_config_print_default() - a file that says what is so without one */
void kv_config_print_default(const struct kv_config *cfg, FILE *out);

/* kv_config_man() - the page of the manual on the file */
void kv_config_man(const struct kv_config *cfg, FILE *out);

#endif /* KVMM_CONFIG_H */
