/** How the tab of canvases looks: the frame takes all of it. */

export const CANVAS_STYLES = `
.content.whole { padding: 0; display: flex; flex-direction: column; }
.narrow .content.whole { padding: 0; }
.narrow .canvas-head { padding-inline: 12px; }
.canvas { flex: 1; display: flex; flex-direction: column; min-block-size: 0; }
.canvas-head { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: baseline; padding: 8px 18px;
  border-block-end: 1px solid var(--line); }
.canvas-head h2 { font-size: 14px; }
.canvas-head .note { margin: 0; flex: 1; text-align: end; }
.canvas-place { flex: 1; display: flex; min-block-size: 0; background: var(--sunk); }
.canvas-frame { flex: 1; border: 0; inline-size: 100%; background: var(--ground); }
`;
