// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/test/cluster"
	"github.com/kruisectl/kruisectl/test/cluster/images"
)

func newLoadImage() *cobra.Command {
	var cluName, as, dir string
	cmd := &cobra.Command{
		Use:   "load-image [FILE ...]",
		Short: "Put images from archives (docker save format) into the registry of a cluster",
		RunE: func(cmd *cobra.Command, files []string) error {
			if dir != "" {
				found, err := filepath.Glob(filepath.Join(dir, "*.tar"))
				if err != nil {
					return err
				}
				files = append(files, found...)
			}
			if len(files) == 0 {
				return errors.New("no archives: name files or --dir with *.tar in it")
			}
			if as != "" && len(files) > 1 {
				return errors.New("--as names one image, but there are several archives")
			}
			c, err := cluster.Load(cluName)
			if err != nil {
				return err
			}
			for _, f := range files {
				if err := loadArchive(cmd, c, f, as); err != nil {
					return err
				}
			}
			return nil
		},
	}
	nameFlag(cmd, &cluName)
	cmd.Flags().StringVar(&as, "as", "", "name to give the image, instead of those in the archive")
	cmd.Flags().StringVar(&dir, "dir", "", "load all *.tar files of this directory")
	return cmd
}

// loadArchive pushes every named image of an archive.
func loadArchive(cmd *cobra.Command, c *cluster.Cluster, file, as string) error {
	manifest, err := tarball.LoadManifest(opener(file))
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	for _, d := range manifest {
		for _, ref := range d.RepoTags {
			tag, err := name.NewTag(ref)
			if err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			image, err := tarball.ImageFromPath(file, &tag)
			if err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			if as != "" {
				ref = as
			}
			if err := c.Push(cmd.Context(), ref, image); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), ref)
		}
	}
	return nil
}

func newBuildProduct() *cobra.Command {
	var cluName, repo, tag string
	cmd := &cobra.Command{
		Use:   "build-product",
		Short: "Compile the manager and the node agent, and push their image to the registry of a cluster",
		Long:  "Compile the manager and the node agent, and push their image to the registry of a cluster. Prints name@digest;\nthe digest changes only if a program changes.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := say(cmd.ErrOrStderr(), false)
			c, err := cluster.Load(cluName)
			if err != nil {
				return err
			}
			progress("compiling the product in %s", repo)
			start := time.Now()
			image, err := images.BuildProduct(cmd.Context(), repo)
			if err != nil {
				return err
			}
			ref := images.ProductRepository + ":" + tag
			progress("pushing %s (compiled in %s)", ref, time.Since(start).Round(time.Second))
			if err := c.Push(cmd.Context(), ref, image); err != nil {
				return err
			}
			digest, err := image.Digest()
			if err != nil {
				return fmt.Errorf("computing the digest of %s: %w", ref, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", ref, digest)
			return err
		},
	}
	nameFlag(cmd, &cluName)
	cmd.Flags().StringVar(&repo, "repo", ".", "root of the product's repository")
	cmd.Flags().StringVar(&tag, "tag", "dev", "tag of the image")
	return cmd
}

func newListImages() *cobra.Command {
	return &cobra.Command{
		Use:   "images",
		Short: "List the test images that every cluster with real nodes serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range images.Names(images.Catalog()) {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), n); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func opener(file string) tarball.Opener {
	return func() (io.ReadCloser, error) { return os.Open(file) }
}
